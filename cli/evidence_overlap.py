"""The work behind `embspace evidence states` and `embspace evidence logits`."""

from typing import Any

import click

from .evidence_work import WAY_OUT, finish, followed
from .opening import Opening
from .options import plot_option, seed_option
from .output import Output
from .texts import read_some, some_texts_options

OPTIONS = (
    click.option(
        "-k", "--top", type=click.IntRange(min=1), default=50, show_default=True, help="k of R_k."
    ),
    click.option(
        "-m",
        "--vectors",
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        metavar="M",
        help="Most activated vectors of each part, after the nonlinearity.",
    ),
    click.option(
        "--per-text",
        type=click.IntRange(min=1),
        default=4,
        show_default=True,
        metavar="N",
        help="Random positions of each text.",
    ),
    some_texts_options(100),
    seed_option,
    plot_option,
)


def overlap_options(command: Any) -> Any:
    """k, m, positions and texts."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def measure(
    opening: Opening,
    output: Output,
    *,
    against: Any,
    top: int,
    vectors: int,
    per_text: int,
    text: str | None,
    texts: int,
    column: str | None,
    seed: int,
    plot: str | None,
) -> None:
    """Run the model, then compare layer by layer."""
    from embspace.evidence.state_overlap import Overlaps
    from embspace.read.forecast import needs_of_vectors

    def needs(model: Any) -> Any:
        n = texts * per_text
        used = 2 * min(n * vectors, 4 * model.d) + 2 * model.n_heads * model.d_head
        return needs_of_vectors(model, model.n_layers * (n + used), passes=1)

    model = opening.open(needs, WAY_OUT)
    read = read_some(model, text, texts, column, seed=seed)
    found = Overlaps(model, read, against=against, k=top, m=vectors, per_text=per_text)
    for _ in followed(found, model.n_layers, "layers"):
        pass
    finish(output, found.result(), plot)
