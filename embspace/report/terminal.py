"""Results as something rich can print at any width."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .tables import SheetView
from .views import sheet


def as_rich(result: Any) -> "SheetView":
    """A result as something rich can print at any width."""
    return SheetView(sheet(result))


def together(results: Iterable[Any]) -> "SheetView":
    """Results of one place (a head's circuits) as one sheet, with the first one's heading."""
    sheets = [sheet(result) for result in results]
    notes = dict.fromkeys(note for each in reversed(sheets) for note in each.notes)
    views = tuple(view for each in sheets for view in each.views)
    return SheetView(replace(sheets[0], views=views, notes=tuple(notes)))
