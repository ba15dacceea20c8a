"""Results as something rich can print at any width."""

from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console

from .style import ISOLATE, POP
from .tables import UNBOUNDED, SheetView
from .view import View
from .views import sheet


def as_rich(result: Any) -> "SheetView":
    """A result as something rich can print at any width."""
    return SheetView(sheet(result))


def as_text(result: Any, width: int | None = None) -> str:
    """A result as plain text, without colours: as wide as it needs, or `width` cells."""
    screen = Console(file=StringIO(), width=width or UNBOUNDED, color_system=None)
    with screen.capture() as captured:
        screen.print(result if hasattr(result, "__rich__") else as_rich(result))
    text = captured.get().replace(ISOLATE, "").replace(POP, "")
    return "\n".join(line.rstrip(" ") for line in text.rstrip("\n").split("\n"))


def together(results: Iterable[Any], noise: float = 0.0, notes: Iterable[str] = ()) -> "SheetView":
    """Results of one place (a head's circuits) as one sheet, with the first one's heading.

    ×rms below `noise` is shown dim; `notes` stand before those of the results.
    """
    sheets = [sheet(result) for result in results]
    own = (note for each in reversed(sheets) for note in each.notes)
    notes = dict.fromkeys((*notes, *own))
    views = tuple(_over(view, noise) for each in sheets for view in each.views)
    return SheetView(replace(sheets[0], views=views, notes=tuple(notes)))


def _over(view: View, noise: float) -> View:
    """The same view, whose ×rms is dim below `noise` only."""
    if not noise:
        return view
    columns = tuple(
        replace(c, noise=noise, tone="plain") if c.header == "×rms" else c for c in view.columns
    )
    return replace(view, columns=columns)
