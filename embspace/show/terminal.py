"""Reports as something rich can print: tables that adapt to the terminal they meet."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from .heat_maps import heat_blocks
from .long_tables import GAP, MANY_ROWS, long_table
from .report import Column, Report, Table, report
from .style import ISOLATE, POP, STYLES, label_text, words
from .token_grids import grid_blocks
from .wording import WIDEST, joined

LEAST = 12  # cells a column of tokens should have before optional columns are given up
ROOM = 24  # cells a column of words should have
APART = 5  # cells between tables that stand side by side
BETWEEN = 4  # cells between heat maps or grids that stand side by side
UNBOUNDED = 1000  # wider than any terminal: a pipe, where tables stand below each other
WIDEST_ROW = 200  # cells that maps and grids side by side may take, however wide the pipe


def as_rich(result: Any) -> "TerminalReport":
    """A result as something rich can print at any width."""
    return TerminalReport(report(result))


def as_text(result: Any, width: int | None = None) -> str:
    """A result as plain text, without colours: as wide as it needs, or `width` cells."""
    screen = Console(file=StringIO(), width=width or UNBOUNDED, color_system=None)
    with screen.capture() as captured:
        screen.print(result if hasattr(result, "__rich__") else as_rich(result))
    text = captured.get().replace(ISOLATE, "").replace(POP, "")
    return "\n".join(line.rstrip(" ") for line in text.rstrip("\n").split("\n"))


def together(
    results: Iterable[Any], noise: float = 0.0, notes: Iterable[str] = ()
) -> "TerminalReport":
    """Results of one place (a head's circuits) as one report, with the first one's heading.

    ×rms below `noise` is shown dim; `notes` stand before those of the results.
    """
    reports = [report(result) for result in results]
    own = (note for each in reversed(reports) for note in each.notes)
    tables = tuple(_dimmed(table, noise) for each in reports for table in each.tables)
    return TerminalReport(
        replace(reports[0], tables=tables, notes=tuple(dict.fromkeys((*notes, *own))))
    )


def _dimmed(table: Table, noise: float) -> Table:
    """The same table, whose ×rms is dim below `noise` only."""
    if not noise:
        return table
    columns = tuple(
        replace(c, noise=noise, tone="plain") if c.header == "×rms" else c for c in table.columns
    )
    return replace(table, columns=columns)


@dataclass(frozen=True)
class TerminalReport:
    """A heading, tables side by side where there is room for all, maps, grids and notes."""

    report: Report
    stacked: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        encoding, mine = options.encoding, self.report
        alone = len(mine.tables) == 1
        title = joined(mine.title, mine.tables[0].title if alone else "")
        for text, style in ((title, "bold"), (mine.lead, ""), (mine.about, "dim")):
            if text or style == "bold":
                yield words(text, style, encoding)
        yield Text()
        tables = [TerminalTable(replace(t, title="") if alone else t) for t in mine.tables]
        yield from _arranged(tables, console, options, stacked=self.stacked)
        room = min(options.max_width, WIDEST_ROW)
        if mine.maps:
            yield Text()
            yield from _flowing(heat_blocks(mine.maps, room, encoding), room)
        plain = console.color_system is None
        yield from _flowing([grid_blocks(mine.grids, room, encoding, plain=plain)], room)
        if mine.notes:
            yield Text()
        yield from (words(note, "dim", encoding) for note in mine.notes)


@dataclass(frozen=True)
class TerminalTable:
    """One table without a frame, its title above; columns that have no room are named below."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, width, encoding = self.table, options.max_width, options.encoding
        if table.title:
            yield words(table.title, "italic", encoding)
        if not table.rows:
            yield words("(nothing)", "dim", encoding)
            return
        kept = _kept(table, width)
        if len(table.rows) > MANY_ROWS:
            yield from long_table(table, kept, console, width)
        else:
            yield _rich_table(table, kept, width, encoding)
        left_out = _left_out(table, kept)
        if left_out:
            yield words(left_out, "dim", encoding)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        natural = _natural(self.table)
        widest = max(sum(natural) + GAP * (len(natural) - 1), cell_len(self.table.title))
        return Measurement(min(widest, options.max_width), min(widest, options.max_width))


def _arranged(
    parts: Sequence[TerminalTable], console: Console, options: ConsoleOptions, *, stacked: bool
) -> Iterator[RenderableType]:
    """Tables beside each other in a grid, or one by one with a blank line between."""
    widths = [Measurement.get(console, options, part).maximum for part in parts]
    needed = sum(widths) + APART * (len(widths) - 1)
    few = all(len(part.table.rows) <= MANY_ROWS for part in parts)
    if len(parts) > 1 and few and not stacked and needed <= options.max_width <= UNBOUNDED:
        yield _side_by_side(parts, widths, APART)
        return
    for n, part in enumerate(parts):
        if n:
            yield Text()
        yield part


def _side_by_side(
    parts: Sequence[RenderableType], widths: Sequence[int], apart: int, *, no_wrap: bool = False
) -> RichTable:
    grid = RichTable.grid(padding=(0, apart, 0, 0), pad_edge=False)
    for width in widths:
        grid.add_column(width=width, no_wrap=no_wrap)
    grid.add_row(*parts)
    return grid


def _flowing(families: Sequence[Sequence[Text]], room: int) -> Iterator[RenderableType]:
    """Blocks of lines beside each other, as many as there is room for.

    A family is parted only where it must be.
    """
    rows: list[list[Text]] = []
    for family in families:
        parts = [list(family)] if _taken(family) <= room else [[block] for block in family]
        for part in parts:
            if rows and _taken([*rows[-1], *part]) <= room:
                rows[-1] += part
            elif part:
                rows.append(part)
    for n, row in enumerate(rows):
        if n:
            yield Text()
        yield _side_by_side(row, [_width(block) for block in row], BETWEEN, no_wrap=True)


def _taken(blocks: Sequence[Text]) -> int:
    return sum(_width(block) + BETWEEN for block in blocks) - BETWEEN


def _width(block: Text) -> int:
    return max(map(cell_len, block.plain.split("\n")))


def _left_out(table: Table, kept: Sequence[int]) -> str:
    """`(2 more columns in a wider terminal: 9, 10)`; uncounted where several have one name.

    Nothing where only bars are missing, which draw a number that is there.
    """
    n = sum(bool(c.header) for at, c in enumerate(table.columns) if at not in kept)
    if not n:
        return ""
    there = {table.columns[at].header for at in kept}
    names = dict.fromkeys(c.header for c in table.columns if c.header and c.header not in there)
    counted = f"{n} more" if n == len(names) or not names else "more"
    more = f"{counted} column{'' if counted == '1 more' else 's'} in a wider terminal"
    return f"({more}: {', '.join(names)})" if names else f"({more})"


def _rich_table(table: Table, kept: Sequence[int], width: int, encoding: str) -> RichTable:
    """The cells of some columns."""
    tight = _needed(table, kept, width) > width
    grid = RichTable(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="")
    for at in kept:
        column = table.columns[at]
        is_number = column.kind == "number"
        header = words(column.header, "dim", encoding)
        if tight and is_number:  # its words below each other: a number is never cut
            header = Text("\n").join(header.split(" "))
        justify = "right" if is_number else "left"
        grid.add_column(header, justify=justify, no_wrap=is_number, overflow="fold")
    for n, row in enumerate(table.cells):
        if n in table.breaks:
            grid.add_row()
        values = table.rows[n]
        grid.add_row(*(_cell(table.columns[at], row[at], encoding, values[at]) for at in kept))
    return grid


def _cell(column: Column, text: str, encoding: str, value: Any) -> Text:
    if column.kind == "token":
        return label_text(text, column.tone, encoding)
    noisy = column.noise and isinstance(value, float) and abs(value) < column.noise
    return words(text, "dim" if noisy else STYLES[column.tone], encoding)


def _kept(table: Table, width: int) -> list[int]:
    """Columns that fit: optional ones go, in their order, while tokens are squeezed; then numbers
    from the right, for a number that is cut off is another number."""
    kept = list(range(len(table.columns)))
    for drop in sorted({column.drop for column in table.columns} - {0}):
        if _needed(table, kept, width) <= width:
            break
        kept = [at for at in kept if table.columns[at].drop != drop]
    for at in reversed(kept[1:]):
        if _needed(table, kept, width, tight=True) <= width:
            break
        if table.columns[at].kind == "number":
            kept.remove(at)
    return kept


def _needed(table: Table, kept: Sequence[int], width: int, *, tight: bool = False) -> int:
    """Cells for some columns; tight: with the words of numbers' headers below each other."""
    natural = _natural(table, tight=tight)
    least = {"token": LEAST, "text": ROOM, "number": width}
    squeezed = [min(least[table.columns[at].kind], natural[at]) for at in kept]
    return sum(squeezed) + GAP * (len(squeezed) - 1)


def _natural(table: Table, *, tight: bool = False) -> list[int]:
    """Cells of each column's widest cell; of tokens, at most what a table shows of one."""
    found = []
    for at, column in enumerate(table.columns):
        most = WIDEST if column.kind == "token" else UNBOUNDED
        parts = column.header.split(" ") if tight and column.kind == "number" else [column.header]
        cells = (min(cell_len(row[at]), most) for row in table.cells)
        found.append(max(*map(cell_len, parts), *cells, 0))
    return found
