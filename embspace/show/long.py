"""Tables of very many rows: plain lines in columns, which cost microseconds each."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from .style import STYLES, encodable, words
from .view import Column, View, clipped

LEAST = 4  # cells that a squeezed column keeps
MANY_ROWS = 1000  # beyond, rich's own tables take seconds
GAP = "  "


def long_table(view: View, kept: Sequence[int], console: Console, width: int) -> Iterator[Segment]:
    """The rows of a view, one line each; words and tokens are clipped to leave numbers whole."""
    columns = [view.columns[at] for at in kept]
    encoding = console.encoding
    heads = [words(column.header, "", encoding).plain for column in columns]
    rows = [
        [_shown(c, row[at], encoding) for c, at in zip(columns, kept, strict=True)]
        for row in view.cells()
    ]
    natural = [max(map(cell_len, texts)) for texts in zip(heads, *rows, strict=True)]
    widths = _squeezed(columns, natural, width)
    styles = [console.get_style(STYLES[column.tone] or "none") for column in columns]
    dim = [console.get_style("dim")] * len(columns)
    for n, texts in enumerate([heads, *rows]):
        if n - 1 in view.breaks:
            yield Segment.line()
        cut = [_cut(text, room, encoding) for text, room in zip(texts, widths, strict=True)]
        yield from _line(cut, columns, widths, styles if n else dim, width)


def _squeezed(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Widths of columns that fit the room: the widest one that is no number gives way first."""
    found = list(widths)
    free = [at for at, column in enumerate(columns) if column.kind != "number"]
    left = sum(found) + len(GAP) * (len(found) - 1) - room
    while left > 0 and free:
        widest = max(free, key=lambda at: found[at])
        if found[widest] <= LEAST:
            break
        found[widest] -= 1
        left -= 1
    return found


def _line(
    texts: Sequence[str],
    columns: Sequence[Column],
    widths: Sequence[int],
    styles: Sequence[Style],
    room: int,
) -> Iterator[Segment]:
    for text, column, width, style in zip(texts, columns, widths, styles, strict=True):
        if room <= 0:
            break
        space = " " * (width - cell_len(text))
        cell = space + text if column.kind == "number" else text + space
        yield Segment(cell if width <= room else set_cell_size(cell, room), style)
        yield Segment(GAP if width + len(GAP) <= room else "")
        room -= width + len(GAP)
    yield Segment.line()


def _cut(text: str, room: int, encoding: str) -> str:
    if cell_len(text) <= room:
        return text
    marked = clipped(text, room)
    return marked if encodable(marked, encoding) == marked else set_cell_size(text, room)


def _shown(column: Column, text: str, encoding: str) -> str:
    if column.kind == "token":
        return encodable(clipped(text), encoding)
    return words(text, "", encoding).plain
