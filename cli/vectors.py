"""`embspace vectors`: single vectors of a head's matrices."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output


@click.command("vectors", context_settings=o.CONTEXT, short_help="Single vectors of a head.")
@o.model_argument
@click.option(
    "--group", type=click.Choice(["q", "k", "v", "o"]), required=True, help="W_Q, W_K, W_V or W_O."
)
@click.option("-l", "--layer", type=int, required=True, metavar="N", help="Layer, from 0.")
@click.option("--head", type=int, required=True, metavar="N", help="Head, from 0.")
@click.option("-n", "--index", type=int, metavar="N", help="Only this vector, from 0.")
@o.top_option
@o.filter_option
@o.norm_option
@o.output_options
@o.opening_options
@o.debug_option
def command(
    opening: Opening, output: Output, index: int | None, top: int | None, **of: Any
) -> None:
    """Columns of W_Q, W_K, W_V and rows of W_O of one head, each read as tokens, both ends.

    With --index: that vector's table. Without: one line a vector with its stronger end; − marks
    the lower end. --json prints one result's to_dict(), several as {"vectors": [...]}.

    \b
        embspace vectors --group v --layer 3 --head 1
        embspace vectors gpt2 --group o --layer 10 --head 0 --index 5
    """
    from embspace.projection.needs import needs_of_vectors

    filters = of.pop("filters")
    model = opening.open(lambda m: needs_of_vectors(m, m.d_head), "use --dtype float32.")
    group = model.vectors(**of)
    if index is not None:
        output.one(group[index].top_tokens(top or 20, filters=filters))
        return
    from embspace.report.headings import heading_of_vectors
    from embspace.report.lines import VectorLine

    found = group.top_tokens(top or 8, filters=filters)
    output.stream("vectors", found, len(found), VectorLine, heading_of_vectors(group, filters))
