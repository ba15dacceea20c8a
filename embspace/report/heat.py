"""Heat maps in a terminal: a digit from 0 to 9 over a shade, readable without colours too."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import ConsoleOptions
from rich.table import Table
from rich.text import Text

from .style import words
from .view import HeatMap

APART = 4  # cells between maps that stand side by side
WIDEST = 200  # cells that maps side by side may take, however wide the pipe
CELLS = (3, 2, 1)  # widths of a cell, the widest that fits
# Viridis: even to the eye, the same order for the colour-blind and in grey. Paper, ink.
PAPERS = (
    *("#440154", "#482475", "#414487", "#355f8d", "#2a788e"),
    *("#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26"),
)
SHADES = tuple((paper, "#ffffff" if n < 6 else "#000000") for n, paper in enumerate(PAPERS))


def flowing(
    families: Sequence[Sequence[HeatMap]], options: ConsoleOptions
) -> Iterator[Table | Text]:
    """Maps beside each other, as many families a line as there is room for."""
    room = min(options.max_width, WIDEST)
    drawn = [[lines(each, room, options.encoding) for each in family] for family in families]
    for n, row in enumerate(_rows(drawn, room)):
        if n:
            yield Text()
        grid = Table.grid(padding=(0, APART, 0, 0), pad_edge=False)
        for block in row:
            grid.add_column(width=_width(block), no_wrap=True)
        grid.add_row(*(Text("\n").join(block) for block in row))
        yield grid


def lines(heat: HeatMap, room: int, encoding: str = "utf-8") -> list[Text]:
    """One map: title, scale, column numbers and rows; in bands where it is wider than the room."""
    n = max((len(row) for row in heat.values), default=0)
    stub = max(len(str(len(heat.values) - 1)), len(_corner(heat))) + 1
    cell = next((w for w in CELLS if stub + n * w <= room), CELLS[-1])
    step = max(1, (room - stub) // cell)
    drawn = [words(heat.title, "italic", encoding), words(scale(heat), "dim", encoding)]
    for start in range(0, n, step):
        band = range(start, min(start + step, n))
        drawn += [_header(heat, band, stub, cell)]
        drawn += [_row(heat, at, band, stub, cell) for at in range(len(heat.values))]
    for line in drawn:
        line.truncate(room)
    return drawn


def level(heat: HeatMap, value: float) -> int:
    """0 for the smallest number of a map, 9 for the largest, even steps between."""
    low, high = _range(heat)
    return 9 if high <= low else min(9, int(10 * (value - low) / (high - low)))


def shade_of(p: float) -> tuple[str, str]:
    """Paper and ink of a probability, ten even steps."""
    return SHADES[min(9, int(10 * p))]


def scale(heat: HeatMap) -> str:
    """What the digits stand for."""
    if not _numbers(heat):
        return "(no numbers)"
    low, high = _range(heat)
    return f"0 = {low:.3g} … 9 = {high:.3g}"


def _header(heat: HeatMap, band: range, stub: int, cell: int) -> Text:
    """Numbers of the columns, as many as have room."""
    every = next(e for e in (1, 2, 5, 10, 20, 50, 100, 1000) if len(str(band[-1])) < e * cell)
    numbers = ""
    for n, column in enumerate(band):
        if column % every == 0 and len(numbers) <= n * cell:
            numbers += " " * (n * cell - len(numbers)) + f"{column:>{min(cell, 2)}}"
    return Text(f"{_corner(heat):<{stub}}" + numbers[: len(band) * cell], style="dim")


def _corner(heat: HeatMap) -> str:
    return f"{heat.rows}\\{heat.columns}"


def _row(heat: HeatMap, at: int, band: range, stub: int, cell: int) -> Text:
    line = Text(f"{at:>{stub - 1}} ", style="")
    line.stylize("dim", 0, stub)
    for column in band:
        value, marked = heat.values[at][column], (at, column) in heat.marked
        if value is None:
            line.append(f"{'.':^{cell}}", "dim")
            continue
        step = level(heat, value)
        paper, ink = SHADES[step]
        line.append(_cell(step, marked, cell), f"{'bold ' if marked else ''}{ink} on {paper}")
    return line


def _cell(step: int, marked: bool, cell: int) -> str:
    """A digit; in brackets, after a star or as # where it is marked, by the room there is."""
    if not marked:
        return f"{step:^{cell}}" if cell > 2 else f"{step:>{cell}}"
    return {3: f"[{step}]", 2: f"*{step}", 1: "#"}[cell]


def _rows(families: Sequence[list[list[Text]]], room: int) -> Iterator[list[list[Text]]]:
    """Blocks in lines of at most so many cells; a family is parted only where it must be."""
    row: list[list[Text]] = []
    for family in families:
        parts = [family] if _taken(family) <= room else [[block] for block in family]
        for part in parts:
            if row and _taken([*row, *part]) > room:
                yield row
                row = []
            row = [*row, *part]
    if row:
        yield row


def _taken(blocks: Sequence[list[Text]]) -> int:
    return sum(_width(block) + APART for block in blocks) - APART


def _width(block: list[Text]) -> int:
    return max(cell_len(line.plain) for line in block)


def _numbers(heat: HeatMap) -> list[float]:
    return [value for row in heat.values for value in row if value is not None]


def _range(heat: HeatMap) -> tuple[float, float]:
    numbers = _numbers(heat)
    return min(numbers), max(numbers)
