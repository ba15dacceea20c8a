"""`embspace reproduce embedding`: the claims of "Analyzing Transformers in Embedding Space"."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .reproducing import reproduce_options


@click.command(
    "embedding",
    context_settings=o.CONTEXT,
    short_help="Analyzing Transformers in Embedding Space.",
)
@click.option("--text", metavar="TEXT", help="Sentences to run on, as in `embspace fit`.")
@click.option("--weights-only", is_flag=True, help="Leave out what runs the model.")
@click.option(
    "--pair", nargs=2, metavar="A B", help="Two training runs of one vocabulary, to align."
)
@click.option(
    "--tuned", metavar="FOLDER", help="A classifier made of MODEL by `embspace finetune`."
)
@click.option("--kept", metavar="A", help="Pretrained model to stitch onto it.  [default: MODEL]")
@click.option("--data", metavar="WHERE", help="Labelled texts for it, as in `embspace stitch`.")
@reproduce_options
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, **how: Any) -> None:
    """Analyzing Transformers in Embedding Space (Dar et al. 2022), measured on MODEL.

    Pairs of matching vectors, activated vectors against the layer's and the final state, what
    fine-tuning changed, two training runs aligned, models stitched, both inverses of E. Prints each
    claim, the paper's figure, ours, and whether it holds. Without MODEL the bundled samples play
    all parts; with one, what is not given is not measured.

    \b
        embspace reproduce embedding --quick
        embspace reproduce embedding gpt2 --text wiki.txt --pair bert-seed1 bert-seed2
    """
    from .reproducing import embedding

    embedding(opening, output, **how)
