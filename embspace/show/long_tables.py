"""Tables of very many rows as plain lines in columns, for rich takes a millisecond a row."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment

from .report import Column, Table
from .style import STYLES, encodable, words
from .wording import clipped

LEAST = 4  # cells that a squeezed column keeps
GAP = 2  # cells between columns
MANY_ROWS = 1000  # from which a table is long


def long_table(table: Table, kept: Sequence[int], console: Console, room: int) -> Iterator[Segment]:
    """The rows of a table, one line each; words and tokens are clipped to leave numbers whole."""
    columns = [table.columns[at] for at in kept]
    encoding = console.encoding
    heads = [words(column.header, "", encoding).plain for column in columns]
    rows = [
        [_shown(c, row[at], encoding) for c, at in zip(columns, kept, strict=True)]
        for row in table.cells
    ]
    natural = [max(map(cell_len, texts)) for texts in zip(heads, *rows, strict=True)]
    widths = _squeezed(columns, natural, room)
    styles = [console.get_style(STYLES[column.tone] or "none") for column in columns]
    dim = [console.get_style("dim")] * len(columns)
    for n, texts in enumerate([heads, *rows]):
        if n - 1 in table.breaks:
            yield Segment.line()
        left = room
        for text, column, width, style in zip(
            texts, columns, widths, styles if n else dim, strict=True
        ):
            if left <= 0:
                break
            text = _cut(text, width, encoding)
            space = " " * (width - cell_len(text))
            cell = space + text if column.kind == "number" else text + space
            yield Segment(cell if width <= left else set_cell_size(cell, left), style)
            left -= width + GAP
            yield Segment(" " * GAP if left >= 0 else "")
        yield Segment.line()


def _squeezed(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Widths of columns that fit the room: the widest one that is no number gives way first."""
    found = list(widths)
    free = [at for at, column in enumerate(columns) if column.kind != "number"]
    for _ in range(sum(found) + GAP * (len(found) - 1) - room):
        widest = max(free, key=lambda at: found[at], default=None)
        if widest is None or found[widest] <= LEAST:
            break
        found[widest] -= 1
    return found


def _cut(text: str, room: int, encoding: str) -> str:
    if cell_len(text) <= room:
        return text
    marked = clipped(text, room)
    return marked if encodable(marked, encoding) == marked else set_cell_size(text, room)


def _shown(column: Column, text: str, encoding: str) -> str:
    if column.kind == "token":
        return encodable(clipped(text), encoding)
    return words(text, "", encoding).plain
