"""`embspace vectors`: single vectors of a head's matrices."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .places import place_argument
from .reading_options import Through, reading_options

if TYPE_CHECKING:
    from embspace.memory import Needs
    from embspace.read.reader import ReadableModel

TABLE, LINE = 20, 8  # tokens of each end shown unless --top says otherwise


@o.command("vectors", "Single vectors of a head.")
@place_argument("head")
@click.option(
    "--group", type=click.Choice(["q", "k", "v", "o"]), required=True, help="W_Q, W_K, W_V or W_O."
)
@o.layer_option
@o.head_option
@click.option("-n", "--index", type=int, metavar="N", help="Only this vector, from 0.")
@o.top_option(f"{LINE} a line, {TABLE} with --index")
@o.filter_option
@reading_options
@o.norm_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    index: int | None,
    top: int | None,
    through: Through,
    **of: Any,
) -> None:
    """Columns of W_Q, W_K, W_V and rows of W_O of one head (3.1, or --layer 3 --head 1), each
    read as tokens, both ends.

    With --index: that vector's table. Without: one line a vector with its stronger end; − marks
    the lower end. ×rms is the strongest score over the root mean square of the vector's scores: a
    random vector reaches about √(2 ln V), 4.7 for V = 50,000, so that less is noise, shown dim.
    --json prints one result's to_dict(), several as {"vectors": [...]}.

    \b
        embspace vectors --group v --layer 3 --head 1
        embspace vectors gpt2 10.0 --group o --index 5
    """
    if of["layer"] is None or of["head"] is None:
        raise click.UsageError("name one head: embspace vectors MODEL 3.1, or --layer 3 --head 1.")
    filters = of.pop("filters")
    opening.require_layers([of["layer"]])
    model = opening.open(lambda m: _needs(m, index, filters, **of), "use --dtype float32.")
    norm, layer = of.pop("norm"), of["layer"]
    through.prepare(model, [layer], norm=norm)
    group = model.vectors(**of, reading=through.reading(model, layer, norm=norm))
    if index is not None:
        output.one(group[index].top_tokens(top or TABLE, filters=filters))
        return
    from embspace.show.topics.surveys import VectorLine, heading_of_vectors, noise_of_vectors

    found = group.top_tokens(top or LINE, filters=filters)
    line = partial(VectorLine, noise=noise_of_vectors(model.vocabulary, filters))
    output.stream("vectors", found, len(found), line, heading_of_vectors(group, filters))


def _needs(
    model: "ReadableModel",
    index: int | None,
    filters: tuple[str, ...],
    *,
    layer: int,
    head: int,
    **of: Any,
) -> "Needs":
    """What the work needs; raises EmbspaceError for what does not exist."""
    from embspace.errors import EmbspaceError
    from embspace.read.forecast import needs_of_vectors

    model.heads[layer, head]
    model.vocabulary.mask(filters)
    if index is not None and not 0 <= index < model.d_head:
        raise EmbspaceError(f"--index {index} does not exist: there are 0 to {model.d_head - 1}.")
    return needs_of_vectors(model, model.d_head if index is None else 1)
