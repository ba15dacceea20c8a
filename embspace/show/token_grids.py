"""Grids of tokens in a terminal: shaded by probability, and readable without colours too."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from .heat_maps import shade_of
from .report import TokenGrid
from .style import cut, encodable, label_text, padded, words

LEAST, MOST = 5, 12  # cells of a token
BARS = " ▁▂▃▄▅▆▇█"  # a probability without colours, eighths
DIGITS = "0123456789"  # the same where the terminal cannot show bars


def grid_blocks(grids: Sequence[TokenGrid], room: int, encoding: str, *, plain: bool) -> list[Text]:
    """Every grid as a block of lines of at most so many cells; plain: without colours."""
    return [Text("\n").join(_lines(grid, room, encoding, plain)) for grid in grids]


def _lines(grid: TokenGrid, room: int, encoding: str, plain: bool) -> list[Text]:
    """One grid: its title, then bands of as many positions as there is room for."""
    found = [words(grid.title, "italic", encoding)]
    stub, width = _stub(grid), _width(grid, room, plain)
    step = max(1, (room - stub) // (width + 2))
    for start in range(0, len(grid.heads), step):
        if start:
            found.append(Text())
        band = range(start, min(len(grid.heads), start + step))
        found += _band(grid, band, stub, width, encoding, plain)
    for line in found:
        cut(line, room, encoding)
    return found


def _band(
    grid: TokenGrid, band: range, stub: int, width: int, encoding: str, plain: bool
) -> Iterator[Text]:
    numbers = words(" " * stub, "dim")
    heads = padded(words("layer", "dim"), stub)
    for at in band:
        numbers.append(f"{grid.numbers[at]:<{width + 1}} ", "dim")
        style = "bold reverse" if at in grid.marked else "dim"
        mark = "»" if at in grid.marked and plain and encodable("»", encoding) == "»" else ""
        _put(heads, mark + grid.heads[at], width + 1, style, encoding)
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
    if plain:
        _put(line, token, width - 1, "", encoding)
        line.append(f" {_bar(p, encoding)} ")
        return
    paper, ink = shade_of(p)
    style = f"{'bold ' if settled else ''}{ink} on {paper}"
    _put(line, token, width, style, encoding)
    line.append(" ", style).append(" ")


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


def _width(grid: TokenGrid, room: int, plain: bool) -> int:
    """Cells of a token: the longest that occurs, within limits and the room.

    One more without colours, so that a token and the bar behind it stay apart.
    """
    tokens = [token for row in grid.cells for token, _, _ in row]
    longest = max(map(cell_len, [*tokens, *grid.heads, *map(str, grid.foot)]), default=LEAST)
    most = min(MOST + plain, max(LEAST, room - _stub(grid) - 2))
    return max(LEAST, min(longest + plain, most))
