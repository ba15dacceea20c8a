"""How many readings look at once: a heading, then one line a result, printed as it comes.

A line fits the terminal it meets. A score over the rms that chance alone explains is shown dim.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ...read.circuits import SIDES, CircuitPairs, Pair, circuit_notes
from ...read.neurons import NeuronTokens
from ...read.related import RelatedPairs
from ...read.seen_rows import largest_cosine
from ...read.vectors import VectorTokens, vector_settings
from ..long_tables import GAP
from ..report import Tone
from ..style import cut, label_text, padded, words
from ..terminal import UNBOUNDED
from ..wording import joined, model_name, settings_line, shown
from .readings import TONES, extreme, related_rule, shares_line

if TYPE_CHECKING:
    from ...evidence.grades import Grades
    from ...read.vectors import FeedForwardReading, VectorGroup
    from ...weights.model import Model
    from ...weights.vocabulary import VocabularySpace

MOST = 36  # cells that one pair may take of a line
LEAST = 12  # cells that a column of tokens should have
STRONGER = "Each vector's stronger end; − marks the lower one."


class Line(ABC):
    """One line of text, neither padded nor wrapped."""

    @abstractmethod
    def line(self, width: int, encoding: str) -> Text:
        """The text, for a terminal of so many cells."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = self.line(options.max_width, options.encoding)
        line.rstrip()
        line.no_wrap, line.overflow = True, "crop"
        yield line


@dataclass(frozen=True)
class PairLine(Line):
    """A circuit's strongest pairs beside each other, as many as there is room for."""

    result: CircuitPairs
    noise: float = 0.0  # ×rms below is dim
    grades: "Grades | None" = None  # how far each reading is to be trusted, where measured

    def line(self, width: int, encoding: str) -> Text:
        result = self.result
        best = result.pairs[0].score / max(result.rms, 1e-30) if result.pairs else 0.0
        where = f"{result.layer:>5} {result.head:>4}  {result.circuit:2} "
        if self.grades:
            grade = self.grades.of(result.layer, result.head, result.circuit) or ""
            where += f"{grade:6} "
        line = _start(where, best, self.noise)
        more = words("…", "dim", encoding)
        for n, pair in enumerate(result.pairs):
            last = n + 1 == len(result.pairs)
            left = width - line.cell_len - (0 if last else GAP + more.cell_len)
            shown = _pair(pair, result.circuit, MOST if n else max(1, min(left, MOST)), encoding)
            if n and shown.cell_len > left:
                return line.append_text(more)
            line.append_text(shown).append(" " * GAP)
        return line


@dataclass(frozen=True)
class NeuronLine(Line):
    """A neuron's keys and value in columns of equal width, each with its stronger end's tokens."""

    result: NeuronTokens
    noise: float = 0.0  # ×rms below is dim

    def line(self, width: int, encoding: str) -> Text:
        result = self.result
        expert = "" if result.expert is None else f"{result.expert}:"
        name = f"{expert}{result.neuron}"
        line = _start(f"{result.layer:>5} {name:>9} ", result.peak, self.noise)
        for name, room in _equal_columns(tuple(result.vectors), width - line.cell_len):
            tone: Tone = "value" if name == "value" else "key"
            tokens = stronger_end(result.vectors[name], tone, room, encoding)
            line.append_text(padded(tokens, room)).append(" " * GAP)
        return line


@dataclass(frozen=True)
class VectorLine(Line):
    """A vector's place in its group and the tokens of its stronger end."""

    result: VectorTokens
    noise: float = 0.0  # ×rms below is dim

    def line(self, width: int, encoding: str) -> Text:
        index = self.result.vector.rsplit(" ", 1)[-1]
        line = _start(f"{index:>5} ", self.result.peak, self.noise)
        room = width - line.cell_len
        room = room if room < UNBOUNDED else 0
        return line.append_text(stronger_end(self.result, "value", room, encoding))


@dataclass(frozen=True)
class RelatedLine(Line):
    """A layer's share of related pairs beside the shuffled share, and its pairs most alike."""

    result: RelatedPairs

    def line(self, width: int, encoding: str) -> Text:
        result = self.result
        expert = "" if result.expert is None else f":{result.expert}"
        line = Text(f"{result.layer:>5} {expert:>6} ")
        line.stylize("dim")
        for name, share in result.share.items():
            line.append(f" {share:>6.1%}", "bold")
            line.append(f" {result.share_shuffled[name]:>8.1%}", "dim")
        line.append(" " * GAP)
        for pair in result.pairs[:3]:
            line.append(f"{pair.neuron}: ", "dim")
            for label in pair.shared[:4]:
                line.append_text(label_text(label, "value", encoding)).append(" ")
            if len(pair.shared) > 4:
                line.append_text(words("… ", "dim", encoding))
            line.append(" ")
        if width < UNBOUNDED:
            cut(line, width, encoding)
        return line


def _start(where: str, peak: float, noise: float) -> Text:
    """Where a line's result stands, dim, and its ×rms, dim where it may be noise."""
    line = Text(where, style="")
    line.stylize("dim")
    return line.append(f"{peak:>6.1f}  ", "dim" if peak < noise else "")


def _equal_columns(names: tuple[str, ...], room: int) -> list[tuple[str, int]]:
    """Columns of equal width, 0 for any; first ones are left out where all would be too narrow."""
    if room >= UNBOUNDED:
        return [(name, 0) for name in names]
    while len(names) > 1 and (room + GAP) // len(names) - GAP < LEAST:
        names = names[1:]
    return [(name, (room + GAP) // len(names) - GAP) for name in names]


def stronger_end(vector: VectorTokens, tone: Tone, width: int, encoding: str) -> Text:
    """The tokens of the end with the stronger score, a minus before those of the lower end.

    As many as fit in `width` cells; all where that is 0.
    """
    ends = [end for end in (vector.top, vector.bottom) if end]
    tokens = max(ends, key=lambda end: abs(end[0].score)) if ends else ()
    lower = bool(tokens) and tokens is vector.bottom
    text = Text.assemble(words("− " if lower else "", "dim", encoding))
    more = words(" …", "dim", encoding)
    for n, token in enumerate(tokens):
        label = label_text(token.label, tone, encoding)
        left = width - text.cell_len - bool(n) - label.cell_len
        if width and n and left < (more.cell_len if n + 1 < len(tokens) else 0):
            cut(text, width - more.cell_len, encoding)
            text.append_text(more)
            break
        text.append(" " if n else "").append_text(label)
    if width:
        cut(text, width, encoding)
    return text


def _pair(pair: Pair, circuit: str, most: int, encoding: str) -> Text:
    """`source → target`; the longer side is cut first where the pair takes more cells."""
    first, second = SIDES[circuit]
    left = label_text(pair.source, TONES[first], encoding)
    right = label_text(pair.target, TONES[second], encoding)
    arrow = words(" → ", "dim", encoding)
    room = most - arrow.cell_len
    half = room // 2
    cut(left, max(half, room - right.cell_len), encoding)
    cut(right, max(half, room - left.cell_len), encoding)
    return Text.assemble(left, arrow, right)


@dataclass(frozen=True)
class Heading(Line):
    """Title, explanations, and the names of a line's columns."""

    title: str
    about: tuple[str, ...]
    where: str
    groups: tuple[str, ...] = ()

    def line(self, width: int, encoding: str) -> Text:
        line = words(self.where, "dim", encoding)
        for name, room in _equal_columns(self.groups, width - line.cell_len):
            line.append_text(padded(words(name, "dim"), room)).append(" " * GAP)
        return line

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield words(self.title, "bold", options.encoding)
        yield from (words(sentence, "dim", options.encoding) for sentence in self.about)
        yield Text()
        yield from super().__rich_console__(console, options)


def heading_of_pairs(
    model: "Model",
    n_heads: int,
    circuits: Sequence[str],
    settings: dict[str, Any],
    grades: "Grades | None" = None,
) -> Heading:
    """Above a survey of circuits; with a column of grades where there are any."""
    read = [f"{circuit}: {' → '.join(SIDES[circuit])}" for circuit in circuits]
    about = joined(*read, extreme(settings), settings_line(settings))
    notes = circuit_notes(model, circuits, settings.get("distance"))
    notes += (shown(grades.note()),) if grades else ()
    trust = f"{'trust':6} " if grades else ""
    where = f"{'layer':>5} {'head':>4}  {'':2} {trust}{'×rms':>6}  "
    return Heading(joined(model_name(model.provenance), f"{n_heads} heads"), (about, *notes), where)


def heading_of_neurons(reading: "FeedForwardReading", n: int, filters: Sequence[str]) -> Heading:
    """Above the sharpest neurons of layers."""
    about = joined(
        f"of each layer, the {n} of {len(reading.values)} neurons whose value singles out a token "
        "most (×rms: largest |score| over the rms of all)",
        settings_line(vector_settings(reading.reading) | {"filters": filters}),
    )
    return Heading(
        joined(model_name(reading.model.provenance), "feed-forward neurons"),
        (about, STRONGER, *_notes(reading.model)),
        f"{'layer':>5} {'neuron':>9} {'×rms':>6}  ",
        tuple(reading.groups()),
    )


def heading_of_vectors(group: "VectorGroup", filters: Sequence[str]) -> Heading:
    """Above the vectors of a group."""
    about = joined(STRONGER, settings_line(vector_settings(group.reading) | {"filters": filters}))
    return Heading(
        joined(model_name(group.model.provenance), group.name),
        (about, *_notes(group.model)),
        f"{'index':>5} {'×rms':>6}  ",
        ("tokens",),
    )


def heading_of_related(reading: "FeedForwardReading", *, absolute: bool = False) -> Heading:
    """Above the share of related key-value pairs by layer."""
    about = joined(
        "share of a layer's neurons, beside that of shuffled pairs, then the pairs most alike",
        settings_line({"norm": reading.norm}),
    )
    parts = [name for name in reading.groups() if name != "value"]
    where = f"{'layer':>5} {'':>6} " + "".join(f" {name:>6} {'shuffled':>8}" for name in parts)
    rule = related_rule(0.15, 100, absolute=absolute)
    title = joined(model_name(reading.model.provenance), rule)
    return Heading(title, (about, *_notes(reading.model)), where + "  ", ("pairs",))


def summary_of_related(results: Sequence[RelatedPairs]) -> Text:
    """Below the layers: the mean share over all of them."""

    def means(shares: Sequence[dict[str, float]]) -> dict[str, float]:
        return {name: sum(each[name] for each in shares) / len(shares) for name in shares[0]}

    share, shuffled = (means([getattr(r, f) for r in results]) for f in ("share", "share_shuffled"))
    return words("mean over layers: " + shares_line(share, shuffled), "bold")


def _notes(model: "Model") -> tuple[str, ...]:
    """What a reader of the weights must know, scores of W_QK apart."""
    return tuple(note for note in model.notes if "W_QK" not in note)


def largest_of(n: float) -> float:
    """About the largest of n Gaussian scores of rms 1, which chance explains: √(2 ln n)."""
    return math.sqrt(2 * math.log(max(n, 1.0)))


def noise_of_pairs(
    space: "VocabularySpace",
    filters: Iterable[str] = (),
    token: str | None = None,
    unit_width: int | None = None,
) -> float:
    """For the strongest pair of a circuit; with a token, for the strongest in its row.

    unit_width: of rows of length one, whose scores are cosines and have a largest value.
    """
    n = _taking_part(space, filters)
    n_pairs = float(n) * n if token is None else n
    if unit_width:
        return largest_cosine(n_pairs, unit_width) * unit_width**0.5
    return largest_of(n_pairs)


def noise_of_vectors(space: "VocabularySpace", filters: Iterable[str] = ()) -> float:
    """For the strongest score of one vector."""
    return largest_of(_taking_part(space, filters))


def _taking_part(space: "VocabularySpace", filters: Iterable[str]) -> int:
    mask = space.mask(filters)
    return len(space) if mask is None else int(mask.sum())
