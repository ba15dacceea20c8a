"""The work behind `embspace align`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .interrupt import stop_if_interrupted
from .opening import Opening
from .output import Output
from .terminal import console, say

if TYPE_CHECKING:
    from embspace.projection.reader import ReadableModel

WAY_OUT = "align fewer --groups, with --dtype float32."


def align_models(
    openings: tuple[Opening, Opening],
    output: Output,
    *,
    groups: tuple[str, ...] | None,
    plot: str | None,
    **how: Any,
) -> None:
    """Open both models, match their layers, show the result and draw it."""
    from embspace.compare.alignment import align

    a, b = open_pair(openings, groups)
    result = align(a, b, groups=groups, watch=_watched, filters=how.pop("filters"), **how)
    output.one(result)
    if plot:
        from embspace.report.plots.alignment import plot_alignment

        plot_alignment(result, plot)
        say(f"wrote {plot}")


def open_pair(
    openings: tuple[Opening, Opening], groups: tuple[str, ...] | None
) -> "tuple[ReadableModel, ReadableModel]":
    """A, then B; memory for both is asked for, and B refused where the two do not go together."""
    from embspace.compare.alignment_needs import needs_of_alignment
    from embspace.compare.shared_tokens import shared_tokens

    a = openings[0].open()

    def needs(b: "ReadableModel") -> Any:
        shared_tokens(a.vocabulary, b.vocabulary)
        return needs_of_alignment(a, b, groups)

    return a, openings[1].open(needs, WAY_OUT)


def _watched(steps: Iterable[None], total: int) -> Iterable[None]:
    """The steps with a bar on stderr; an interrupt that a library swallowed ends them."""
    from embspace.report.progress import tracked

    for step in tracked(steps, total, "pairs of layers", console(stderr=True)):
        stop_if_interrupted()
        yield step
