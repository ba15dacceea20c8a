"""What a table of a result holds, before a terminal or a page decides how it looks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size

WIDEST = 80  # cells of a label that a table shows; exports keep all of it
Kind = Literal["token", "number", "text"]
Tone = Literal["asks", "attended", "promoted", "key", "value", "good", "bad", "faint", "plain"]


@dataclass(frozen=True)
class Column:
    """One column: tokens (folded when narrow, isolated), numbers (aligned together) or text.

    `drop` orders the columns that a narrow terminal leaves out, 1 first; 0 is always kept.
    """

    header: str
    kind: Kind = "text"
    tone: Tone = "plain"
    drop: int = 0
    digits: int = 4  # of the largest number in a column of numbers
    noise: float = 0.0  # numbers of less size are shown dim


@dataclass(frozen=True)
class View:
    """One table: its title, if it needs one beside the sheet's, and its cells."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    breaks: frozenset[int] = frozenset()  # rows with a gap above them

    def cells(self) -> list[tuple[str, ...]]:
        """All cells as text, row by row; each column of numbers with the same decimals."""
        return self._cells

    @cached_property
    def _cells(self) -> list[tuple[str, ...]]:
        columns = [
            numbers(values, column.digits) if column.kind == "number" else [*map(_plain, values)]
            for column, values in zip(self.columns, zip(*self.rows, strict=True), strict=False)
        ]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class HeatMap:
    """Numbers by two kinds of layers, shaded from the smallest to the largest; some are marked.

    values: rows × columns, None where there is no number; the title names what they are. shades:
    what the colours follow, where that is not the values.
    """

    title: str
    values: tuple[tuple[float | None, ...], ...]
    rows: str
    columns: str
    marked: frozenset[tuple[int, int]] = frozenset()
    shades: tuple[tuple[float | None, ...], ...] = ()

    def shade(self, row: int, column: int) -> float | None:
        """The number that a cell's colour follows."""
        return (self.shades or self.values)[row][column]


@dataclass(frozen=True)
class TokenGrid:
    """Tokens by layer (down) and position (across), each shaded by its probability.

    heads: the input token of each column, `marked` those that are masked; cells: rows × columns of
    (token, probability, whether it is the final answer for good); foot: a last line of words;
    hover: what a page shows of each cell.
    """

    title: str
    rows: tuple[str, ...]
    heads: tuple[str, ...]
    numbers: tuple[int, ...]
    marked: frozenset[int]
    cells: tuple[tuple[tuple[str, float, bool], ...], ...]
    foot: tuple[str, ...]
    foot_name: str
    hover: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Sheet:
    """All of a result: what it is of, how it was made, its tables, what a reader must know.

    lead: the answer in a sentence or two, where a result has one; it stands below the title.
    Heat maps stand below the tables, those of a family beside each other where there is room;
    grids of tokens below those.
    """

    title: str
    about: str
    views: tuple[View, ...]
    notes: tuple[str, ...] = ()
    maps: tuple[tuple[HeatMap, ...], ...] = ()
    grids: tuple[TokenGrid, ...] = ()
    lead: str = ""


def numbers(values: Sequence[Any], digits: int = 4) -> list[str]:
    """Numbers with the decimals that give the largest `digits` digits; whole ones as they are."""
    real = [abs(v) for v in values if isinstance(v, float) and math.isfinite(v) and v]
    largest = max(real, default=0.0)
    if real and not 1e-4 <= largest < 1e7:
        return [f"{v:.3e}" if isinstance(v, float) else _plain(v) for v in values]
    decimals = max(0, min(7, digits - 1 - math.floor(math.log10(largest)))) if real else 0
    return [f"{v:.{decimals}f}" if isinstance(v, float) else _plain(v) for v in values]


def _plain(value: Any) -> str:
    return "" if value is None else str(value)


def shown(text: str) -> str:
    """Text of unknown origin on one line: what cannot be printed becomes an escape."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def clipped(text: str, cells: int = WIDEST) -> str:
    """Text of at most so many cells, its cut end marked."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text[:cells], cells - 1).rstrip() + "…"


def model_name(provenance: dict[str, Any]) -> str:
    """The model's name for a title: a folder's own name, a Hub name whole."""
    name = str(provenance.get("model", "model"))
    path = PurePath(name)
    short = path.name if path.is_absolute() or name.startswith((".", "~")) else name
    return shown(short or name)


def origin(provenance: dict[str, Any], settings: dict[str, Any] | None = None) -> tuple[str, ...]:
    """One line that says which weights were read, in which arithmetic, and how the model was run.

    settings: of a result that ran the model, with `run_dtype` and `batch_tokens`.
    """
    if not provenance:
        return ()
    revision = provenance.get("revision")
    parts = [
        f"weights {provenance.get('model_hash')}",
        f"revision {shown(str(revision))}" if revision else "",
        f"stored as {provenance.get('stored_dtype')}, read in {provenance.get('dtype')}",
        f"run in {dtype}" if (dtype := (settings or {}).get("run_dtype")) else "",
        f"{batch} tokens a batch" if (batch := (settings or {}).get("batch_tokens")) else "",
    ]
    return (", ".join(part for part in parts if part) + ".",)


def joined(*parts: str) -> str:
    """The parts that say something, with a dot between them."""
    return " · ".join(part for part in parts if part)


_SAME = {
    True: "no pairs of a token with itself",
    "word": "no pairs of one word (case and word start aside)",
}


def settings_line(settings: dict[str, Any]) -> str:
    """How a result was found, in words: norms, inverse, filters, distance."""
    filters = ", ".join(shown(str(name)) for name in settings.get("filters") or ())
    distance = settings.get("distance")
    return joined(
        f"{settings.get('norm', 'raw')} norms",
        "pseudo-inverse" if settings.get("inverse") == "pinv" else "",
        f"relative distance {distance}" if distance is not None else "",
        f"filter {filters}" if filters else "",
        _SAME.get(settings.get("exclude_same", False), ""),
    )
