"""Sheets as rich tables that adapt to the terminal they meet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .grids import beside
from .heat import flowing
from .long import MANY_ROWS, long_table
from .style import STYLES, label_text, words
from .view import WIDEST, Column, Sheet, View, joined

GAP = 2  # cells between columns
LEAST = 12  # cells a column of tokens should have before optional columns are given up
ROOM = 24  # cells a column of words should have
APART = 5  # cells between tables that stand side by side
UNBOUNDED = 1000  # wider than any terminal: a pipe, where tables stand below each other


@dataclass(frozen=True)
class SheetView:
    """A heading, tables side by side where there is room for all, and notes."""

    sheet: Sheet
    stacked: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        encoding, sheet = options.encoding, self.sheet
        alone = len(sheet.views) == 1
        title = joined(sheet.title, sheet.views[0].title if alone else "")
        yield words(title, "bold", encoding)
        if sheet.lead:
            yield words(sheet.lead, "", encoding)
        if sheet.about:
            yield words(sheet.about, "dim", encoding)
        yield Text()
        parts = [replace(view, title="") if alone else view for view in sheet.views]
        tables = [TableView(view) for view in parts]
        yield from _below(tables) if self.stacked else _arranged(tables, console, options)
        if sheet.maps:
            yield Text()
            yield from flowing(sheet.maps, options)
        if sheet.grids:
            yield from beside(sheet.grids, console, options)
        if sheet.notes:
            yield Text()
        yield from (words(note, "dim", encoding) for note in sheet.notes)


@dataclass(frozen=True)
class TableView:
    """One view as a table without a frame, its title above."""

    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.view.title:
            yield words(self.view.title, "italic", options.encoding)
        if not self.view.rows:
            yield words("(nothing)", "dim", options.encoding)
            return
        width = options.max_width
        kept = _kept(self.view, width)
        if len(self.view.rows) > MANY_ROWS:
            yield from long_table(self.view, kept, console, width)
        else:
            yield table(self.view, width, options.encoding)
        left_out = _left_out(self.view, kept)
        if left_out:
            yield words(left_out, "dim", options.encoding)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = _widths(self.view, range(len(self.view.columns)))
        natural = max(sum(widths) + GAP * (len(widths) - 1), cell_len(self.view.title))
        return Measurement(min(natural, options.max_width), min(natural, options.max_width))


def _left_out(view: View, kept: Sequence[int]) -> str:
    """`(2 more columns in a wider terminal: 9, 10)`; uncounted where several have one name.

    Nothing where only bars are missing, which draw a number that is there.
    """
    n = sum(bool(c.header) for at, c in enumerate(view.columns) if at not in kept)
    if not n:
        return ""
    there = {view.columns[at].header for at in kept}
    names = dict.fromkeys(c.header for c in view.columns if c.header and c.header not in there)
    counted = f"{n} more" if n == len(names) or not names else "more"
    more = f"{counted} column{'' if counted == '1 more' else 's'} in a wider terminal"
    return f"({more}: {', '.join(names)})" if names else f"({more})"


def _arranged(
    parts: Sequence[TableView], console: Console, options: ConsoleOptions
) -> Iterable[Any]:
    """Tables beside each other in a grid, or one by one with a blank line between."""
    widths = [Measurement.get(console, options, part).maximum for part in parts]
    needed = sum(widths) + APART * (len(widths) - 1)
    short = all(len(part.view.rows) <= MANY_ROWS for part in parts)
    if len(parts) > 1 and short and needed <= options.max_width <= UNBOUNDED:
        grid = Table.grid(padding=(0, APART, 0, 0), pad_edge=False)
        for width in widths:
            grid.add_column(width=width)
        grid.add_row(*parts)
        yield grid
    else:
        yield from _below(parts)


def _below(parts: Sequence[TableView]) -> Iterable[Any]:
    for n, part in enumerate(parts):
        if n:
            yield Text()
        yield part


def table(view: View, width: int, encoding: str = "utf-8") -> Table:
    """The cells of a view, without the columns that a narrow terminal has no room for."""
    kept = _kept(view, width)
    tight = _needed(view, kept, width) > width
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="")
    for at in kept:
        column = view.columns[at]
        number = column.kind == "number"
        header = words(column.header, "dim", encoding)
        if tight and number:  # its words below each other: a number is never cut
            header = Text("\n").join(header.split(" "))
        justify = "right" if number else "left"
        grid.add_column(header, justify=justify, no_wrap=number, overflow="fold")
    for n, row in enumerate(view.cells()):
        if n in view.breaks:
            grid.add_row()
        grid.add_row(*(_cell(view.columns[at], row[at], encoding, view.rows[n][at]) for at in kept))
    return grid


def shares(names: tuple[str, ...], room: int) -> list[tuple[str, int]]:
    """Columns of equal width, 0 for any; first ones are left out where all would be too narrow."""
    if room >= UNBOUNDED:
        return [(name, 0) for name in names]
    while len(names) > 1 and (room + GAP) // len(names) - GAP < LEAST:
        names = names[1:]
    return [(name, (room + GAP) // len(names) - GAP) for name in names]


def _cell(column: Column, text: str, encoding: str, value: Any) -> Text:
    if column.kind == "token":
        return label_text(text, column.tone, encoding)
    noisy = column.noise and isinstance(value, float) and abs(value) < column.noise
    return words(text, "dim" if noisy else STYLES[column.tone], encoding)


def _kept(view: View, width: int) -> list[int]:
    """Columns that fit: optional ones go, in their order, while tokens are squeezed; then numbers
    from the right, for a number that is cut off is another number."""
    kept = list(range(len(view.columns)))
    for drop in sorted({column.drop for column in view.columns} - {0}):
        if _needed(view, kept, width) <= width:
            break
        kept = [at for at in kept if view.columns[at].drop != drop]
    for at in reversed(kept[1:]):
        if _needed(view, kept, width, tight=True) <= width:
            break
        if view.columns[at].kind == "number":
            kept.remove(at)
    return kept


def _needed(view: View, kept: Sequence[int], width: int, *, tight: bool = False) -> int:
    """Cells for some columns; tight: with the words of numbers' headers below each other."""
    widths = _widths(view, kept, tight=tight)
    least = {"token": LEAST, "text": ROOM, "number": width}
    squeezed = [
        min(least[view.columns[at].kind], natural) for at, natural in zip(kept, widths, strict=True)
    ]
    return sum(squeezed) + GAP * (len(squeezed) - 1)


def _most(column: Column) -> int:
    """Cells that a cell of a column may take."""
    return WIDEST if column.kind == "token" else UNBOUNDED


def _widths(view: View, kept: Sequence[int], *, tight: bool = False) -> list[int]:
    rows = view.cells()
    return [
        max(
            _header_width(view.columns[at], tight),
            *(min(cell_len(row[at]), _most(view.columns[at])) for row in rows),
            0,
        )
        for at in kept
    ]


def _header_width(column: Column, tight: bool) -> int:
    if tight and column.kind == "number":
        return max(map(cell_len, column.header.split(" ")))
    return cell_len(column.header)
