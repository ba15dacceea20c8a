"""One line a result, each readable by itself and printed as it comes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ..read.circuits import SIDES, CircuitPairs, Pair
from ..read.neurons import NeuronTokens
from ..read.related import RelatedPairs
from ..read.vectors import VectorTokens
from .style import cut, label_text, padded, words
from .tables import GAP, UNBOUNDED, shares
from .view import Tone
from .views import TONES

if TYPE_CHECKING:
    from ..evidence.grades import Grades

MOST = 36  # cells that one pair may take of a line


@dataclass(frozen=True)
class PairLine:
    """A circuit's strongest pairs beside each other, as many as there is room for."""

    result: CircuitPairs
    noise: float = 0.0  # ×rms below is dim
    grades: "Grades | None" = None  # how far each reading is to be trusted, where measured

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result = self.result
        best = result.pairs[0].score / max(result.rms, 1e-30) if result.pairs else 0.0
        where = f"{result.layer:>5} {result.head:>4}  {result.circuit:2} "
        if self.grades:
            grade = self.grades.of(result.layer, result.head, result.circuit) or ""
            where += f"{grade:6} "
        line = _start(where, best, self.noise)
        room = options.max_width - line.cell_len
        yield _ended(line.append_text(packed(result, room, options.encoding)))


@dataclass(frozen=True)
class NeuronLine:
    """A neuron's keys and value in columns of equal width, each with its stronger end's tokens."""

    result: NeuronTokens
    noise: float = 0.0  # ×rms below is dim

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result = self.result
        expert = "" if result.expert is None else f"{result.expert}:"
        name = f"{expert}{result.neuron}"
        line = _start(f"{result.layer:>5} {name:>9} ", result.peak, self.noise)
        for name, width in shares(tuple(result.vectors), options.max_width - line.cell_len):
            tone: Tone = "value" if name == "value" else "key"
            tokens = stronger_end(result.vectors[name], tone, width, options.encoding)
            line.append_text(padded(tokens, width)).append(" " * GAP)
        yield _ended(line)


@dataclass(frozen=True)
class VectorLine:
    """A vector's place in its group and the tokens of its stronger end."""

    result: VectorTokens
    noise: float = 0.0  # ×rms below is dim

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        index = self.result.vector.rsplit(" ", 1)[-1]
        line = _start(f"{index:>5} ", self.result.peak, self.noise)
        room = options.max_width - line.cell_len
        width = room if room < UNBOUNDED else 0
        yield _ended(line.append_text(stronger_end(self.result, "value", width, options.encoding)))


@dataclass(frozen=True)
class RelatedLine:
    """A layer's share of related pairs beside the shuffled share, and its pairs most alike."""

    result: RelatedPairs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
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
                line.append_text(label_text(label, "value", options.encoding)).append(" ")
            if len(pair.shared) > 4:
                line.append_text(words("… ", "dim", options.encoding))
            line.append(" ")
        if options.max_width < UNBOUNDED:
            cut(line, options.max_width, options.encoding)
        yield _ended(line)


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


def _start(where: str, peak: float, noise: float) -> Text:
    """Where a line's result stands, dim, and its ×rms, dim where it may be noise."""
    line = Text(where, style="")
    line.stylize("dim")
    return line.append(f"{peak:>6.1f}  ", "dim" if peak < noise else "")


def packed(result: CircuitPairs, room: int, encoding: str) -> Text:
    """Pairs one after the other, each as wide as it is; a mark where there was no room for more."""
    more = words("…", "dim", encoding)
    text = Text()
    for n, pair in enumerate(result.pairs):
        last = n + 1 == len(result.pairs)
        left = room - text.cell_len - (0 if last else GAP + more.cell_len)
        shown = _pair(pair, result.circuit, max(1, min(left, MOST) if n == 0 else MOST), encoding)
        if n and shown.cell_len > left:
            text.append_text(more)
            break
        text.append_text(shown).append(" " * GAP)
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


def _ended(line: Text) -> Text:
    """A line that is neither padded nor wrapped."""
    line.rstrip()
    line.no_wrap, line.overflow = True, "crop"
    return line
