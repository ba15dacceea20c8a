"""`embspace check`: proof that the weights were read rightly."""

from typing import TYPE_CHECKING

import click

from . import options as o
from .followed import working
from .interrupt import stop_if_interrupted
from .opening import Opening
from .output import Output
from .ranges import Spans, layer_spans

if TYPE_CHECKING:
    from embspace.read.reader import ReadableModel


def _layers(model: "ReadableModel", spans: Spans | None) -> list[int] | None:
    """The layers of all spans; raises EmbspaceError for one that does not exist."""
    if spans is None:
        return None
    model.layout.block(max(last for _, last in spans))
    return sorted({n for first, last in spans for n in range(first, last + 1)})


@o.command("check", "Prove the reading of a model.")
@o.model_argument
@click.option("--layers", callback=layer_spans, metavar="0-5,8", help="Only these layers.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random texts.")
@o.output_options
@o.unproved_options
@click.pass_context
def command(
    ctx: click.Context, opening: Opening, output: Output, layers: Spans | None, seed: int
) -> None:
    """Prove the reading of a model against its own forward pass.

    On random texts, what our split of its weights yields is compared with what the model itself
    (transformers) computes: queries, keys, values, attention and feed-forward outputs, residual
    stream and logits. Each row shows the largest relative error, the largest difference divided by
    the largest true value of that tensor, over all texts and layers. An exact 0 means the same
    numbers, bit for bit: both sides did the same operations in the same order.
    Leaves with 1 where a row exceeds its tolerance.

    \b
        embspace check
        embspace check gpt2 --layers 0,11 --json
    """
    from embspace.live.certificate import check

    model = opening.open_unproved()
    chosen = _layers(model, layers)
    with working("running the model and our parts side by side"):
        certificate = check(model, seed=seed, layers=chosen)
    stop_if_interrupted()
    output.one(certificate)
    ctx.exit(0 if certificate.passed else 1)
