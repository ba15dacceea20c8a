"""`embspace alternate`: blocks of a model in turn with jumps by its maps."""

import click

from . import options as o
from .followed import Followed
from .maps_option import chosen_maps, maps_option
from .opening import Opening
from .output import Output
from .ranges import range_option
from .texts import TextOptions, text_options


@o.command("alternate", "Blocks and jumps in turn.")
@o.model_argument
@maps_option("Maps of all pairs.  [default: MODEL.maps, else fitted now and cached]")
@click.option(
    "--schedule",
    "schedules",
    multiple=True,
    metavar="S",
    help="single, rr (all), rr:A,B, r2 or best; may be repeated.  [default: all four kinds]",
)
@range_option(
    "--budgets", help="Blocks run of single, r2 and best, ends included.  [default: all numbers]"
)
@o.count("--beam", default=4, help="Schedules that best keeps at each number of blocks.")
@o.count(
    "--tries",
    help="Schedules that best measures at each number of blocks.  [default: all that follow]",
)
@o.count("--lines", "--rows", "rows", help="Lines to calibrate and to score, each.")
@o.plot_option
@text_options
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: TextOptions,
    maps: str | None,
    schedules: tuple[str, ...],
    budgets: list[int] | None,
    beam: int,
    tries: int | None,
    rows: int | None,
    plot: str | None,
) -> None:
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
    from embspace.shorten.alternation import alternate
    from embspace.shorten.schedules import FAMILIES, parsed

    model = text.run(opening.open())
    for name in schedules:
        parsed(name, model.n_layers)
    given = chosen_maps(maps, opening, model, all_pairs=True)
    read = text.read(model)
    with Followed() as bar:
        result = alternate(
            model,
            given,
            read,
            schedules=schedules or FAMILIES,
            budgets=budgets,
            beam=beam,
            tries=tries,
            rows=rows,
            progress=bar,
        )
    output.one(result, plot)
