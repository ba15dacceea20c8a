"""Grids of tokens in a terminal: shaded by probability, and readable without colours too."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from .heat import shade_of
from .style import cut, encodable, label_text, padded, words
from .view import TokenGrid

APART = 4  # cells between grids that stand side by side
LEAST, MOST = 5, 12  # cells of a token
WIDEST = 200  # cells that one line of a grid takes, however wide the pipe
BARS = " ▁▂▃▄▅▆▇█"  # a probability without colours, eighths
DIGITS = "0123456789"  # the same where the terminal cannot show bars


def beside(
    grids: Sequence[TokenGrid], console: Console, options: ConsoleOptions
) -> Iterator[Table | Text]:
    """Grids side by side where all of them fit whole, else below each other."""
    room = min(options.max_width, WIDEST)
    plain = console.color_system is None
    each = [_lines(grid, room, options.encoding, plain) for grid in grids]
    widths = [max(line.cell_len for line in block) for block in each]
    whole = all(_columns(grid, room) >= len(grid.heads) for grid in grids)
    if len(grids) > 1 and whole and sum(widths) + APART * (len(widths) - 1) <= room:
        table = Table.grid(padding=(0, APART, 0, 0), pad_edge=False)
        for width in widths:
            table.add_column(width=width, no_wrap=True)
        table.add_row(*(Text("\n").join(block) for block in each))
        yield table
        return
    for n, block in enumerate(each):
        if n:
            yield Text()
        yield from block


def _lines(grid: TokenGrid, room: int, encoding: str, plain: bool) -> list[Text]:
    """One grid: its title, then bands of as many positions as there is room for."""
    found = [words(grid.title, "italic", encoding)]
    step, n = _columns(grid, room), len(grid.heads)
    for start in range(0, n, step):
        if start:
            found.append(Text())
        band = range(start, min(n, start + step))
        found += _band(grid, band, room, encoding, plain)
    for line in found:
        cut(line, room, encoding)
    return found


def _band(grid: TokenGrid, band: range, room: int, encoding: str, plain: bool) -> Iterator[Text]:
    stub, width = _stub(grid), _width(grid, room)
    numbers = words(" " * stub, "dim")
    heads = padded(words("layer", "dim"), stub)
    for at in band:
        numbers.append(f"{grid.numbers[at]:<{width + 1}} ", "dim")
        token = grid.heads[at]
        style = "bold reverse" if at in grid.marked else "dim"
        mark = "»" if at in grid.marked and plain and encodable("»", encoding) == "»" else ""
        _put(heads, mark + token, width + 1, style, encoding)
        heads.append(" ")
    yield numbers
    yield heads
    for r, name in enumerate(grid.rows):
        line = Text(f"{name:>{stub - 1}} ", "")
        line.stylize("dim", 0, stub)
        for at in band:
            _cell(line, grid.cells[r][at], width, encoding, plain)
        yield line
    foot = padded(words(grid.foot_name, "dim", encoding), stub)
    for at in band:
        _put(foot, grid.foot[at], width + 1, "dim", encoding)
        foot.append(" ")
    yield foot


def _cell(
    line: Text, cell: tuple[str, float, bool], width: int, encoding: str, plain: bool
) -> None:
    """A token over its shade; without colours with a bar behind it. Bold: the answer for good."""
    token, p, settled = cell
    paper, ink = shade_of(p)
    style = "" if plain else f"{'bold ' if settled else ''}{ink} on {paper}"
    _put(line, token, width, style, encoding)
    line.append(_bar(p, encoding) if plain else " ", style)
    line.append(" ")


def _bar(p: float, encoding: str) -> str:
    if encodable(BARS, encoding) == BARS:
        return BARS[min(8, int(p * 8 + 0.5))]
    return DIGITS[min(9, int(10 * p))]


def _put(line: Text, token: str, width: int, style: str, encoding: str) -> None:
    """A token in so many cells: cut with a mark, or filled up."""
    text = label_text(token, encoding=encoding)
    cut(text, width, encoding)
    padded(text, width)
    text.stylize(style)
    line.append_text(text)


def _stub(grid: TokenGrid) -> int:
    return max(len("layer"), len(grid.foot_name), *map(len, grid.rows)) + 1


def _width(grid: TokenGrid, room: int) -> int:
    """Cells of a token: the longest that occurs, within limits and the room."""
    tokens = [token for row in grid.cells for token, _, _ in row]
    longest = max(map(cell_len, [*tokens, *grid.heads, *map(str, grid.foot)]), default=LEAST)
    most = min(MOST, max(LEAST, room - _stub(grid) - 2))
    return max(LEAST, min(longest, most))


def _columns(grid: TokenGrid, room: int) -> int:
    """Positions a line has room for."""
    return max(1, (room - _stub(grid)) // (_width(grid, room) + 2))
