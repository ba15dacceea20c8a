"""What a reader sees of a result, before a terminal, a page or a file decides how.

`report(result)` gives the tables of a result, `plot(result, path)` draws its figure. How one looks
is written in `topics/`, a file a topic, which is imported when such a result is first shown.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ..errors import EmbspaceError
from ..results import Result
from .wording import joined, model_name, origin

Kind = Literal["token", "number", "text"]
Tone = Literal["asks", "attended", "promoted", "key", "value", "good", "bad", "faint", "plain"]


@dataclass(frozen=True)
class Column:
    """One column: tokens (folded when narrow, isolated), numbers (aligned together) or text.

    cell: what it shows of each thing that has a row, for `Table.of`. drop: the order in which a
    narrow terminal leaves columns out, 1 first; 0 is always kept.
    """

    header: str
    kind: Kind = "text"
    tone: Tone = "plain"
    drop: int = 0
    digits: int = 4  # of the largest number in a column of numbers
    noise: float = 0.0  # numbers of less size are shown dim
    cell: Callable[[Any], Any] | None = None


Cell = Callable[[Any], Any]


def text(header: str, cell: Cell, tone: Tone = "plain", drop: int = 0) -> Column:
    """A column of words, or of numbers that are formatted already."""
    return Column(header, "text", tone, drop, cell=cell)


def token(header: str, cell: Cell, tone: Tone = "plain", drop: int = 0) -> Column:
    """A column of tokens or other text of unknown origin."""
    return Column(header, "token", tone, drop, cell=cell)


def number(
    header: str, cell: Cell, tone: Tone = "plain", drop: int = 0, *, digits: int = 4
) -> Column:
    """A column of numbers, all with the decimals that give the largest one so many digits."""
    return Column(header, "number", tone, drop, digits, cell=cell)


@dataclass(frozen=True)
class Table:
    """One table: its title, if it needs one beside the report's, and its cells."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    breaks: frozenset[int] = frozenset()  # rows with a gap above them

    @classmethod
    def of(
        cls,
        things: Iterable[Any],
        columns: Iterable[Column],
        title: str = "",
        breaks: Iterable[int] = (),
    ) -> "Table":
        """A row for each thing, a cell for each column: `column.cell(thing)`."""
        columns = tuple(columns)
        rows = tuple(tuple(column.cell(one) for column in columns) for one in things)  # type: ignore[misc]
        return cls(columns, rows, title, frozenset(breaks))

    @cached_property
    def cells(self) -> list[tuple[str, ...]]:
        """All cells as text, row by row; each column of numbers with the same decimals."""
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

    @cached_property
    def ends(self) -> tuple[float, float] | None:
        """The smallest and the largest shade; None where there is no number."""
        known = [x for row in self.shades or self.values for x in row if x is not None]
        return (min(known), max(known)) if known else None

    def level(self, shade: float) -> int:
        """0 for the smallest shade of the map, 9 for the largest, even steps between."""
        low, high = self.ends or (0.0, 0.0)
        return 9 if high <= low else min(9, int(10 * (shade - low) / (high - low)))

    def scale(self) -> str:
        """What the levels stand for."""
        if self.ends is None:
            return "(no numbers)"
        low, high = self.ends
        return f"0 = {low:.3g} … 9 = {high:.3g}"


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
class Report:
    """All of a result: what it is of, how it was made, its tables, what a reader must know.

    lead: the answer in a sentence or two, where a result has one; it stands below the title.
    Heat maps stand below the tables, those of a family beside each other where there is room;
    grids of tokens below those.
    """

    title: str
    about: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    maps: tuple[tuple[HeatMap, ...], ...] = ()
    grids: tuple[TokenGrid, ...] = ()
    lead: str = ""


def of_model(
    result: Any,
    title: str,
    about: Iterable[str],
    tables: Iterable[Table],
    notes: Iterable[str] = (),
    **parts: Any,
) -> Report:
    """The report of a result of one model, which is named in the title, its weights below.

    about: what stands below the title, with dots between; notes: what stands before the result's
    own; parts: maps, grids and lead of a `Report`.
    """
    own = (*getattr(result, "notes", ()), *origin(result.provenance, result.settings))
    return Report(
        joined(model_name(result.provenance), title),
        joined(*about),
        tuple(tables),
        (*notes, *own),
        **parts,
    )


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


# Which file of `topics` says how a kind of result looks.
TOPICS: dict[str, tuple[str, ...]] = {
    "alignment": ("Alignment", "StateAlignment"),
    "alternation": ("Alternation",),
    "certificate": ("Certificate",),
    "concepts": ("Concept",),
    "exits": ("Exits", "Generation"),
    "fine_tuning": ("FineTuning", "Difference"),
    "inverse": ("InverseCheck",),
    "lens": ("Lens",),
    "lens_comparison": ("LensComparison",),
    "maps": ("Maps", "KeptMaps"),
    "matching_pairs": ("PairSimilarity",),
    "reading_choice": ("ReadingChoice",),
    "readings": ("CircuitPairs", "VectorTokens", "NeuronTokens", "RelatedPairs", "TokenReading"),
    "relations": ("Relations", "RelationsOfHead"),
    "reproduction": ("Reproduction",),
    "scores": ("Scores", "Transfer", "SubmoduleScores"),
    "state_overlap": ("StateOverlap",),
    "stitching": ("Stitching",),
    "trust": ("Trust",),
}


def _has(function: Any, result: Any) -> bool:
    """Whether a result's topic, imported now, says what `report` or `plot` makes of it."""
    if not isinstance(result, Result):
        raise TypeError(f"{type(result).__name__} is not a result of embspace.")
    name = type(result).__name__
    for topic, results in TOPICS.items():
        if name in results:
            import_module(f".topics.{topic}", __package__)
    return function.dispatch(type(result)) is not function.dispatch(object)


@singledispatch
def report(result: Any) -> Report:
    """The tables of a result, in reading order; any Result can at least be shown row by row."""
    if _has(report, result):
        return report(result)
    rows = result.rows()
    columns = (token(name, lambda row, name=name: row[name]) for name in (rows[0] if rows else ()))
    return Report(type(result).__name__, "", (Table.of(rows, columns),))


@singledispatch
def plot(result: Any, path: str | Path) -> None:
    """Draw a result's figure into a .png, .svg or .pdf file.

    Raises:
        EmbspaceError: Another kind of file, a folder that is not there, no matplotlib, or a kind
            of result that has no figure.
    """
    if not _has(plot, result):
        raise EmbspaceError(f"{type(result).__name__} has no figure.")
    plot(result, path)


def has_figure(result: Result) -> bool:
    """Whether `plot` can draw a result."""
    return _has(plot, result)
