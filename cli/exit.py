"""`embspace exit`: how many blocks leaving early saves, and text generated that way."""

from typing import Any

import click

from . import options as o
from . import ranges
from .opening import Opening
from .output import Output
from .texts import Reading, text_options


def fractions(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """`0.1,0.5` as a tuple of numbers; None where not given."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: give numbers between commas.") from None


@click.command("exit", context_settings=o.CONTEXT, short_help="Leave early: blocks saved.")
@o.model_argument
@click.option(
    "--maps", "--map", "maps", metavar="FILE", help="Fitted maps.  [default: fitted now, cached]"
)
@click.option(
    "--target",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.95,
    show_default=True,
    metavar="P",
    help="Share of answers that must stay.",
)
@click.option(
    "--lambdas",
    callback=fractions,
    metavar="X,Y,…",
    help="λ of the curve.  [default: 0 to 1.112]",
)
@click.option(
    "--exits",
    "layers",
    callback=ranges.numbers,
    metavar="0-5,8",
    help="Look after these numbers of blocks only, ends included.  [default: after every block]",
)
@click.option(
    "--lines",
    "--rows",
    "rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Lines to calibrate and to score, each.",
)
@click.option("--generate", metavar="PROMPT", help="Generate from PROMPT with the chosen exit.")
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    metavar="N",
    help="New tokens of --generate.",
)
@o.plot_option
@text_options
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, reading: Reading, **given: Any) -> None:
    """Leave early, through maps and as states are: blocks saved against answers kept.

    Fixed exit: every position leaves after l blocks. Confidence exit: a position leaves after the
    first block whose decoded prediction has p₁ − p₂ > 0.9 λ + 0.1 exp(−4 t / N): t is its place in
    the text, from 0, N the mean number of tokens up to and with a scored position. λ and l are
    chosen for the target on half of the held-out lines; all figures are of the other half. Net
    counts what looking costs. --generate then writes text whose tokens really stop at their exit,
    beside the full model's in the same run: time, tokens a second, agreement, by how caches are
    filled. --json prints the result's to_dict(), of --generate the text's.

    \b
        embspace exit
        embspace exit gpt2-medium --target 0.95 --plot exit.svg
        embspace exit --generate "The doctor" --tokens 20
    """
    from .exiting import leave_early

    leave_early(opening, output, reading, **given)
