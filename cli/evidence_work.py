"""What the experiments share: a bar while they run, and how their results leave."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from .output import Output
from .terminal import console

if TYPE_CHECKING:
    from embspace.results import Result

Item = TypeVar("Item")
WAY_OUT = "measure fewer vectors, or use --dtype float32."


def followed(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items as they come, counted on stderr."""
    from embspace.show.progress import tracked

    yield from tracked(items, total, what, console(stderr=True))


def finish(output: Output, result: "Result", plot: str | None) -> None:
    """Show or export the result, drawn where asked."""
    output.one(result, plot)
