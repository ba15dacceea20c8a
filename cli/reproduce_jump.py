"""`embspace reproduce jump`: the claims of "Jump to Conclusions"."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .reproducing import reproduce_options


@click.command("jump", context_settings=o.CONTEXT, short_help="Jump to Conclusions.")
@click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="TEXT",
    help="Sentences, as in `embspace fit`; a second one for transfer.  [default: our own for a "
    "bundled sample, else Wikipedia from the Hub]",
)
@reproduce_options
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, texts: tuple[str, ...], **how: Any) -> None:
    """Jump to Conclusions (Yom Din et al. 2024), measured on MODEL.

    r² of all pairs, Precision@k and Surprisal by layer for mat and id, transfer to another text,
    linear sub-modules, exits that are fixed or by confidence with the layers saved at 95 %, blocks
    and jumps in turn. Prints each claim, the paper's figure, ours, and whether it holds.

    \b
        embspace reproduce jump --quick
        embspace reproduce jump gpt2 --text wiki.txt --text news.txt --out gpt2-jump
    """
    from .reproducing import jump

    if len(texts) > 2:
        raise click.UsageError("give --text once or twice.")
    jump(opening, output, texts, **how)
