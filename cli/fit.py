"""`embspace fit`: linear maps between the layers of a model."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .texts import Reading, text_options


@click.command("fit", context_settings=o.CONTEXT, short_help="Fit linear maps between layers.")
@o.model_argument
@click.option("--out", metavar="FILE", help="Where to keep the maps.  [default: MODEL.maps]")
@click.option(
    "--pairs",
    type=click.Choice(["final", "all"]),
    default="final",
    show_default=True,
    help="From every layer to the last, or between all layers.",
)
@click.option(
    "--parts",
    type=click.Choice(["blocks", "submodules"]),
    default="blocks",
    show_default=True,
    help="Between states, or over attention, feed-forward and norms of every block.",
)
@click.option(
    "--kind",
    type=click.Choice(["mat", "affine", "ridge", "refined"]),
    default="mat",
    show_default=True,
    help="Least squares without intercept (the paper's), with one, with a penalty; or mat trained "
    "on towards the model's own output.",
)
@click.option(
    "--ridge",
    type=float,
    metavar="X",
    help="Penalty of --kind ridge, without unit: λ = X times the mean, over coordinates, of Σ x² "
    "over the rows.  [default: chosen for each layer on rows kept apart]",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Fit so many lines at most, and score a third as many.",
)
@click.option("--until-converged", is_flag=True, help="Stop when more rows no longer help.")
@click.option("--resume", is_flag=True, help="Go on from what an unfinished run left behind.")
@click.option(
    "--products",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Of the sums: float32 suits devices that are slow in float64, and keeps r² to 1e-4.",
)
@click.option(
    "--device-map", type=click.Choice(["auto"]), help="Spread a large model (accelerate)."
)
@text_options
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, reading: Reading, **given: Any) -> None:
    """Fit one least-squares matrix per pair of layers, and say how good each is on held-out text.

    A quarter of the lines is held out, drawn by --seed; with --sentences those lines are fitted and
    the others held out. r² is the mean over coordinates on held-out rows, beside that of the
    identity. The state of a run lies in OUT.state until it is done; --resume goes on from there.
    Under torchrun the text is spread over the processes. --kind refined: mat to the last state,
    then epochs of KL to the model's final distribution on the rows that were fitted; a tenth of
    their texts tells when to stop.
    --json prints the record of the maps.

    \b
        embspace fit
        embspace fit gpt2 --text wiki.txt --pairs all --out gpt2.maps
        embspace fit gpt2 --text wiki.txt --kind refined --out gpt2-refined.maps
        torchrun --nproc-per-node 2 -m embspace fit gpt2 --text wiki.txt
    """
    from .fitting import fit_maps

    fit_maps(opening, output, reading, **given)
