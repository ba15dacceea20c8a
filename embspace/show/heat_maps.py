"""Heat maps in a terminal: numbers over shades where they fit, else digits from 0 to 9."""

import math
from collections.abc import Sequence

from rich.text import Text

from .report import HeatMap
from .style import words

APART = 4  # cells between the maps of a family that stand side by side
CELLS = (3, 2, 1)  # widths of a cell of a digit, the widest that fits
RESOLVED = 0.05  # range of numbers that two decimals tell apart
# Viridis: even to the eye, the same order for the colour-blind and in grey. Paper, ink.
PAPERS = (
    *("#440154", "#482475", "#414487", "#355f8d", "#2a788e"),
    *("#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26"),
)
SHADES = tuple((paper, "#ffffff" if n < 6 else "#000000") for n, paper in enumerate(PAPERS))


def shade_of(p: float) -> tuple[str, str]:
    """Paper and ink of a probability, ten even steps."""
    return SHADES[min(9, int(10 * p))]


def heat_blocks(
    families: Sequence[Sequence[HeatMap]], room: int, encoding: str
) -> list[list[Text]]:
    """Every map as a block of lines of at most so many cells."""
    return [
        [Text("\n").join(lines) for lines in _family(family, room, encoding)] for family in families
    ]


def _family(family: Sequence[HeatMap], room: int, encoding: str) -> list[list[Text]]:
    """Maps alike: with their numbers where those fit, side by side if they can, else as digits."""
    side_by_side = (room - APART * (len(family) - 1)) // max(len(family), 1)
    for most in (side_by_side, room):
        for decimals in (3, 2):
            if all(_fits(heat, decimals, most) for heat in family):
                return [_with_numbers(heat, decimals, room, encoding) for heat in family]
    return [_with_digits(heat, room, encoding) for heat in family]


def _fits(heat: HeatMap, decimals: int, room: int) -> bool:
    """Whether numbers of at most 1 fit, and two decimals tell them apart."""
    known = [v for row in heat.values for v in row if v is not None]
    if not known or max(map(abs, known)) > 1 or not all(map(math.isfinite, known)):
        return False
    told = decimals > 2 or max(known) - min(known) >= RESOLVED
    return told and _stub(heat) + _columns(heat) * _size(known, decimals) + 1 <= room


def _size(known: Sequence[float], decimals: int) -> int:
    """Cells of the longest number and of the space before it."""
    return 1 + max(len(_number(value, decimals)) for value in known)


def _number(value: float, decimals: int) -> str:
    """`.31`, `-.02`, `1.00`."""
    text = f"{value:.{decimals}f}"
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    return sign + digits.removeprefix("0")


def _with_numbers(heat: HeatMap, decimals: int, room: int, encoding: str) -> list[Text]:
    """One map whose cells show their numbers; a matched one stands in brackets."""
    stub = _stub(heat)
    size = _size([v for row in heat.values for v in row if v is not None], decimals)
    head = "".join(f"{column:>{size}}" for column in range(_columns(heat)))
    drawn = [words(heat.title, "italic", encoding), Text(f"{_corner(heat):<{stub}}{head}", "dim")]
    drawn += [_number_row(heat, at, decimals, stub, size) for at in range(len(heat.values))]
    for line in drawn:
        line.truncate(room)
    return drawn


def _number_row(heat: HeatMap, at: int, decimals: int, stub: int, size: int) -> Text:
    texts = ["." if v is None else _number(v, decimals) for v in heat.values[at]]
    plain = list(f"{at:>{stub - 1}} " + "".join(f"{text:>{size}}" for text in texts) + " ")
    for column, text in enumerate(texts):
        if (at, column) in heat.marked:
            end = stub + (column + 1) * size
            plain[end - len(text) - 1], plain[end] = "[", "]"
    line = Text("".join(plain))
    line.stylize("dim", 0, stub)
    for column in range(len(texts)):
        start = stub + column * size
        shade = heat.shade(at, column)
        if shade is None:
            line.stylize("dim", start, start + size)
            continue
        paper, ink = SHADES[heat.level(shade)]
        bold = "bold " if (at, column) in heat.marked else ""
        line.stylize(f"{bold}{ink} on {paper}", start, start + size)
    return line


def _columns(heat: HeatMap) -> int:
    return max((len(row) for row in heat.values), default=0)


def _stub(heat: HeatMap) -> int:
    """Cells of a row's number."""
    return max(len(str(len(heat.values) - 1)), len(_corner(heat))) + 1


def _with_digits(heat: HeatMap, room: int, encoding: str) -> list[Text]:
    """One map in digits of its shades, with their scale; in bands where that is too wide."""
    n, stub = _columns(heat), _stub(heat)
    cell = next((w for w in CELLS if stub + n * w <= room), CELLS[-1])
    step = max(1, (room - stub) // cell)
    drawn = [words(heat.title, "italic", encoding), words(heat.scale(), "dim", encoding)]
    for start in range(0, n, step):
        band = range(start, min(start + step, n))
        drawn += [_header(heat, band, stub, cell)]
        drawn += [_row(heat, at, band, stub, cell) for at in range(len(heat.values))]
    for line in drawn:
        line.truncate(room)
    return drawn


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
        value, marked = heat.shade(at, column), (at, column) in heat.marked
        if value is None:
            line.append(f"{'.':^{cell}}", "dim")
            continue
        step = heat.level(value)
        paper, ink = SHADES[step]
        line.append(_cell(step, marked, cell), f"{'bold ' if marked else ''}{ink} on {paper}")
    return line


def _cell(step: int, marked: bool, cell: int) -> str:
    """A digit; in brackets, after a star or as # where it is marked, by the room there is."""
    if not marked:
        return f"{step:^{cell}}" if cell > 2 else f"{step:>{cell}}"
    return {3: f"[{step}]", 2: f"*{step}", 1: "#"}[cell]
