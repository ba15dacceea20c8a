"""`embspace submodules`: attention, feed-forward and norms as linear maps."""

import click

from . import options as o
from .opening import Opening
from .output import Output
from .texts import Followed, Reading, text_options


@click.command("submodules", context_settings=o.CONTEXT, short_help="Linear sub-modules.")
@o.model_argument
@click.option(
    "-l", "--layer", "layers", type=int, multiple=True, metavar="N", help="First linear block."
)
@click.option(
    "--rows", type=click.IntRange(min=1), default=400, show_default=True, help="Lines to score."
)
@text_options
@o.output_options
@o.opening_options
@o.debug_option
def command(
    opening: Opening, output: Output, reading: Reading, layers: tuple[int, ...], rows: int
) -> None:
    """How well the output survives when one kind of sub-module is linear from block l on.

    The least-squares map of each attention (feed-forward, norm) replaces it at every position, in
    every block from l on; the rest of the model runs as it is. Beside it: all of it, from block l
    on, as one map.

    \b
        embspace submodules
        embspace submodules gpt2 --text wiki.txt -l 0 -l 6 --rows 200
    """
    from embspace.mapping.submodules import submodules

    model = opening.open()
    corpus = reading.corpus(model)
    with Followed() as bar:
        found = submodules(
            model,
            corpus,
            layers=list(layers) or None,
            rows=rows,
            lines=reading.lines(corpus),
            run_dtype=reading.run_dtype,
            progress=bar,
            **reading.taking(corpus),
        )
    output.one(found)
