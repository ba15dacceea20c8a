"""`embspace submodules`: attention, feed-forward and norms as linear maps."""

import click

from embspace.errors import EmbspaceError

from . import options as o
from .followed import Followed
from .opening import Opening
from .output import Output
from .ranges import numbers
from .texts import Reading, text_options


@click.command("submodules", context_settings=o.CONTEXT, short_help="Linear sub-modules.")
@o.model_argument
@click.option(
    "-l",
    "--layer",
    "layers",
    callback=numbers,
    multiple=True,
    metavar="0-5,8",
    help="First linear block, of each of these.",
)
@click.option(
    "--replace",
    multiple=True,
    metavar="PART,…",
    help="What is made linear together: attn, ff, norm1, norm2, norms (both norms of a block), or "
    "several between commas. Repeat for several sets.  [default: attn, ff and norms, one by one]",
)
@click.option(
    "--lines",
    "--rows",
    "rows",
    type=click.IntRange(min=1),
    default=400,
    show_default=True,
    metavar="N",
    help="Lines to score.",
)
@text_options
@o.output_options
@o.opening_options
@o.debug_option
def command(
    opening: Opening,
    output: Output,
    reading: Reading,
    layers: list[int] | None,
    replace: tuple[str, ...],
    rows: int,
) -> None:
    """How well the output survives when a kind of sub-module is linear from block l on.

    The least-squares map of each attention (feed-forward part, norm) replaces it at every position,
    in every block from l on; the rest of the model runs as it is. The paper's "layer normalization"
    is both norms of a block together. Beside it: all of it, from block l on, as one map.

    \b
        embspace submodules
        embspace submodules gpt2 --text wiki.txt -l 0 -l 6 --lines 200
        embspace submodules gpt2 --replace attn,norms --replace norm1 --replace norm2
    """
    from embspace.shorten.submodules import parts_of, submodules

    for one in replace:
        try:
            parts_of(one)
        except EmbspaceError as error:
            raise click.BadParameter(str(error), param_hint="--replace") from error
    model = reading.run(opening.open())
    text = reading.read(model)
    with Followed() as bar:
        found = submodules(
            model, text, replace=replace or None, layers=layers, rows=rows, progress=bar
        )
    output.one(found)
