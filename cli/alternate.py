"""`embspace alternate`: blocks of a model in turn with jumps by its maps."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .ranges import numbers
from .texts import Reading, text_options


@click.command("alternate", context_settings=o.CONTEXT, short_help="Blocks and jumps in turn.")
@o.model_argument
@click.option(
    "--maps", "--map", "maps", metavar="FILE", help="Maps of all pairs.  [default: fitted, cached]"
)
@click.option(
    "--schedule",
    "schedules",
    multiple=True,
    metavar="S",
    help="single, rr (all), rr:A,B, r2 or best; may be repeated.  [default: all four kinds]",
)
@click.option(
    "--budgets",
    callback=numbers,
    metavar="0-5,8",
    help="Blocks run of single, r2 and best, ends included.  [default: all numbers]",
)
@click.option(
    "--beam",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="Schedules that best keeps at each number of blocks.",
)
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    metavar="N",
    help="Schedules that best measures at each number of blocks.  [default: all that follow]",
)
@click.option(
    "--lines",
    "--rows",
    "rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Lines to calibrate and to score, each.",
)
@o.plot_option
@text_options
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, reading: Reading, **given: Any) -> None:
    """Run some blocks, jump over the others by maps, and see how often the answer stays.

    \b
    single   n blocks, then one jump to the last state (fixed exit)
    rr:A,B   A blocks run, B are jumped over, and again (A + B divides their number)
    r2       for every number of blocks run the largest product of r² of the jumps
    best     found by measuring on calibration text, block after block taken away (beam search)

    A jump maps the states of all positions of a sequence. Precision@1 of all schedules is of text
    that neither r², nor the search, nor the maps have seen.
    --json prints {"schedules": [{"name", "schedule", "n_run", "precision@1", …}, …], …}.

    \b
        embspace alternate
        embspace alternate gpt2 --schedule rr:2,1 --schedule single --plot alternate.svg
        embspace alternate gpt2 --schedule best --budgets 6,9 --lines 200
    """
    from .exiting import alternate_blocks

    alternate_blocks(opening, output, reading, **given)
