"""Heat maps in a terminal: numbers over shades where they fit, else digits from 0 to 9."""

import math
from collections.abc import Callable, Sequence

from rich.text import Text

from .report import HeatMap
from .style import words

APART = 4  # cells between the maps of a family that stand side by side
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
    return [_family(family, room, encoding) for family in families]


def _family(family: Sequence[HeatMap], room: int, encoding: str) -> list[Text]:
    """Maps alike: with their numbers where those fit, side by side if they can, else as digits."""
    side_by_side = (room - APART * (len(family) - 1)) // max(len(family), 1)
    for most in (side_by_side, room):
        for decimals in (3, 2):
            if all(_fits(heat, decimals, most) for heat in family):
                return [_with_numbers(heat, decimals, room, encoding) for heat in family]
    return [_with_digits(heat, room, encoding) for heat in family]


def _fits(heat: HeatMap, decimals: int, room: int) -> bool:
    """Whether numbers of at most 1 fit, and two decimals tell them apart."""
    known = _known(heat)
    if not known or max(map(abs, known)) > 1 or not all(map(math.isfinite, known)):
        return False
    told = decimals > 2 or max(known) - min(known) >= RESOLVED
    return told and _stub(heat) + _columns(heat) * _size(heat, decimals) + 1 <= room


def _known(heat: HeatMap) -> list[float]:
    return [value for row in heat.values for value in row if value is not None]


def _size(heat: HeatMap, decimals: int) -> int:
    """Cells of the longest number and of the space before it."""
    return 1 + max(len(_number(value, decimals)) for value in _known(heat))


def _number(value: float, decimals: int) -> str:
    """`.31`, `-.02`, `1.00`."""
    text = f"{value:.{decimals}f}"
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    return sign + digits.removeprefix("0")


def _with_numbers(heat: HeatMap, decimals: int, room: int, encoding: str) -> Text:
    def cell(row: int, column: int) -> str:
        value = heat.values[row][column]
        return "." if value is None else _number(value, decimals)

    return _block(heat, [words(heat.title, "italic", encoding)], cell, _size(heat, decimals), room)


def _with_digits(heat: HeatMap, room: int, encoding: str) -> Text:
    """In digits of the shades, with their scale; in bands where that is too wide."""

    def cell(row: int, column: int) -> str:
        shade = heat.shade(row, column)
        return "." if shade is None else str(heat.level(shade))

    head = [words(heat.title, "italic", encoding), words(heat.scale(), "dim", encoding)]
    size = 2 if _stub(heat) + 2 * _columns(heat) < room else 1
    return _block(heat, head, cell, size, room)


def _block(
    heat: HeatMap, head: list[Text], cell: Callable[[int, int], str], size: int, room: int
) -> Text:
    """Lines of `size` cells a column, in bands of as many columns as there is room for."""
    n, stub = _columns(heat), _stub(heat)
    step = max(1, (room - stub - (size > 1)) // size)
    for start in range(0, n, step):
        band = range(start, min(start + step, n))
        head.append(_column_numbers(heat, band, stub, size))
        head += [_row(heat, at, band, cell, stub, size) for at in range(len(heat.values))]
    for line in head:
        line.truncate(room)
    return Text("\n").join(head)


def _column_numbers(heat: HeatMap, band: range, stub: int, size: int) -> Text:
    """Numbers of the columns, as many as have room."""
    every = next(e for e in (1, 2, 5, 10, 20, 50, 100, 1000) if len(str(band[-1])) < e * size)
    numbers = ""
    for n, column in enumerate(band):
        if column % every == 0 and len(numbers) <= n * size:
            numbers += " " * (n * size - len(numbers)) + f"{column:>{size}}"
    return Text(f"{_corner(heat):<{stub}}" + numbers[: len(band) * size], style="dim")


def _row(
    heat: HeatMap, at: int, band: range, cell: Callable[[int, int], str], stub: int, size: int
) -> Text:
    """Cells over their shades; a matched one in brackets, or # where there is no room for them."""
    texts = [cell(at, column) for column in band]
    plain = list(f"{at:>{stub - 1}} " + "".join(f"{text:>{size}}" for text in texts))
    plain += [" "] * (size > 1)
    for n, column in enumerate(band):
        if (at, column) in heat.marked:
            end = stub + (n + 1) * size
            if size > 1:
                plain[end - len(texts[n]) - 1], plain[end] = "[", "]"
            else:
                plain[end - 1] = "#"
    line = Text("".join(plain))
    line.stylize("dim", 0, stub)
    for n, column in enumerate(band):
        shade, bold = heat.shade(at, column), "bold " * ((at, column) in heat.marked)
        style = "dim"
        if shade is not None:
            paper, ink = SHADES[heat.level(shade)]
            style = f"{bold}{ink} on {paper}"
        line.stylize(style, stub + n * size, stub + (n + 1) * size)
    return line


def _columns(heat: HeatMap) -> int:
    return max((len(row) for row in heat.values), default=0)


def _stub(heat: HeatMap) -> int:
    """Cells of a row's number."""
    return max(len(str(len(heat.values) - 1)), len(_corner(heat))) + 1


def _corner(heat: HeatMap) -> str:
    return f"{heat.rows}\\{heat.columns}"
