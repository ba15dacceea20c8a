"""`embspace stitch`: one model's first blocks on another's fine-tuned last ones."""

from typing import Any

import click

from . import options as o
from .classifying import data_options
from .opening import Opening
from .output import Output
from .ranges import numbers


@click.command("stitch", context_settings=o.CONTEXT, short_help="Join two models, untrained.")
@data_options
@click.option(
    "--keep", callback=numbers, metavar="0-5,8", help="Blocks of A kept.  [default: 0 to all]"
)
@click.option(
    "--transplant",
    callback=numbers,
    metavar="1-3",
    help="Last blocks of B.  [default: 1 to those trained]",
)
@click.option(
    "--kernel",
    "kind",
    type=click.Choice(["pinv", "transpose"]),
    default="pinv",
    show_default=True,
    help="pinv: E_A E_B⁺; transpose: E_A E_Bᵀ, scaled.",
)
@click.option(
    "--texts",
    "n_test",
    type=click.IntRange(min=4),
    default=400,
    show_default=True,
    help="Held-out texts: half choose the best cut, half score it.",
)
@click.option("--controls/--no-controls", default=True, help="Also with random kernels.")
@o.plot_option
@o.seed_option
@o.output_options
@o.pair_options("sample-gpt2-b", "sample-gpt2-reviews")
@o.debug_option
def command(openings: tuple[Opening, Opening], output: Output, **given: Any) -> None:
    """Feed A's states, through the vocabulary, into the last blocks and classifier of B.

    A is pretrained only, B a folder of `embspace finetune`; nothing is trained. The kernel
    E_A E_B⁺ (over the tokens that both know) carries A's stream after its first blocks into B's
    stream. For every number of blocks kept and transplanted: accuracy with its 95 % interval,
    beside chance, B alone, a random kernel of equal spectrum and one of shuffled tokens. The best
    cut is chosen on one half of the texts and scored on the other.

    \b
        embspace stitch --data sample --texts 100
        embspace stitch gpt2 gpt2-medium-imdb --data imdb --plot stitch.svg
    """
    from .classifying import join

    join(openings, output, **given)
