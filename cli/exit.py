"""`embspace exit`: how many blocks leaving early saves, and text generated that way."""

from typing import Any

import click

from . import options as o
from .followed import Followed
from .maps_option import chosen_maps, maps_option
from .opening import Opening
from .output import Output
from .ranges import range_option
from .texts import TextOptions, text_options


def fractions(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """`0.1,0.5` as a tuple of numbers; None where not given."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: give numbers between commas.") from None


@o.command("exit", "Leave early: blocks saved.")
@o.model_argument
@maps_option("Fitted maps.  [default: MODEL.maps, else fitted now and cached]")
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
@range_option(
    "--exits",
    "layers",
    help="Look after these numbers of blocks only, ends included.  [default: after every block]",
)
@o.count("--lines", "--rows", "rows", help="Lines to calibrate and to score, each.")
@click.option("--generate", metavar="PROMPT", help="Generate from PROMPT with the chosen exit.")
@o.count("--tokens", default=32, help="New tokens of --generate.")
@o.plot_option
@text_options
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: TextOptions,
    maps: str | None,
    target: float,
    lambdas: tuple[float, ...] | None,
    layers: list[int] | None,
    rows: int | None,
    generate: str | None,
    tokens: int,
    plot: str | None,
) -> None:
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
    opening.require_layers(layers)
    from embspace.shorten.early_exit import exits
    from embspace.shorten.generation import generate as write
    from embspace.shorten.generation import require_prompts
    from embspace.shorten.halves import halves

    model = text.run(opening.open())
    if generate is not None:
        require_prompts(model, [generate], tokens)
    given: Any = chosen_maps(maps, opening, model, all_pairs=generate is not None)
    read = text.read(model)
    with Followed() as bar:
        if generate is not None:  # caches of skipped blocks are filled through all pairs
            given = halves(model, read, given, pairs="all", progress=bar).maps
        how = {"target": target, "lambdas": lambdas, "layers": layers, "rows": rows}
        result = exits(model, given, read, progress=bar, **how)
    if generate is None:
        output.one(result, plot)
        return
    written = write(model, given, generate, exit=result, max_new_tokens=tokens, compare_fills=True)
    output.one(written)
    output.draw(result, plot)
