"""`embspace submodules`: attention, feed-forward and norms as linear maps."""

import click

from embspace.errors import EmbspaceError

from . import options as o
from .followed import Followed
from .opening import Opening
from .output import Output
from .ranges import range_option
from .texts import TextOptions, text_options


@o.command("submodules", "Linear sub-modules.")
@o.model_argument
@range_option(
    "-l", "--layer", "layers", multiple=True, help="First linear block, of each of these."
)
@click.option(
    "--replace",
    multiple=True,
    metavar="PART,…",
    help="What is made linear together: attn, ff, norm1, norm2, norms (both norms of a block), or "
    "several between commas. Repeat for several sets.  [default: attn, ff and norms, one by one]",
)
@o.count("--lines", "--rows", "rows", default=400, help="Lines to score.")
@o.plot_option
@text_options
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: TextOptions,
    layers: list[int] | None,
    replace: tuple[str, ...],
    rows: int,
    plot: str | None,
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
    opening.require_layers(layers)
    from embspace.shorten.submodules import parts_of, submodules

    for one in replace:
        try:
            parts_of(one)
        except EmbspaceError as error:
            raise click.BadParameter(str(error), param_hint="--replace") from error
    model = text.run(opening.open())
    read = text.read(model)
    with Followed() as bar:
        how = {"replace": replace or None, "layers": layers, "rows": rows}
        found = submodules(model, read, progress=bar, **how)
    output.one(found, plot)
