"""What stands above and below the lines of a survey."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ..read.circuits import SIDES, circuit_notes
from ..read.related import RelatedPairs
from .style import padded, words
from .tables import GAP, shares
from .view import joined, model_name, settings_line, shown
from .views import related_rule

if TYPE_CHECKING:
    from ..evidence.grades import Grades
    from ..read.vectors import FeedForwardReading, VectorGroup
    from ..weights.model import Model

PAIRS = f"{'layer':>5} {'head':>4}  {'':2} {'×rms':>6}  "
PAIRS_GRADED = f"{'layer':>5} {'head':>4}  {'':2} {'trust':6} {'×rms':>6}  "
NEURONS = f"{'layer':>5} {'neuron':>9} {'×rms':>6}  "
VECTORS = f"{'index':>5} {'×rms':>6}  "


@dataclass(frozen=True)
class Heading:
    """Title, explanations, and the names of a line's columns."""

    title: str
    about: tuple[str, ...]
    where: str
    groups: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield words(self.title, "bold", options.encoding)
        for sentence in self.about:
            yield words(sentence, "dim", options.encoding)
        yield Text()
        line = words(self.where, "dim", options.encoding)
        for name, width in shares(self.groups, options.max_width - line.cell_len):
            line.append_text(padded(words(name, "dim"), width)).append(" " * GAP)
        line.rstrip()
        line.no_wrap, line.overflow = True, "crop"
        yield line


def heading_of_pairs(
    model: "Model",
    n_heads: int,
    circuits: Sequence[str],
    settings: dict[str, Any],
    grades: "Grades | None" = None,
) -> Heading:
    """Above a survey of circuits; with a column of grades where there are any."""
    read = [f"{circuit}: {' → '.join(SIDES[circuit])}" for circuit in circuits]
    end = "smallest scores" if settings.get("smallest") else "largest scores"
    about = joined(*read, end, settings_line(settings))
    notes = circuit_notes(model, circuits, settings.get("distance"))
    notes += (shown(grades.note()),) if grades else ()
    where = PAIRS_GRADED if grades else PAIRS
    return Heading(joined(model_name(model.provenance), f"{n_heads} heads"), (about, *notes), where)


def heading_of_neurons(reading: "FeedForwardReading", n: int, filters: Sequence[str]) -> Heading:
    """Above the sharpest neurons of layers."""
    title = joined(model_name(reading.model.provenance), "feed-forward neurons")
    settings = {"norm": reading.norm, "filters": filters}
    about = joined(
        f"of each layer, the {n} of {len(reading.values)} neurons whose value singles out a token "
        "most (×rms: largest |score| over the rms of all)",
        settings_line(settings),
    )
    sides = "Each vector's stronger end; − marks the lower one."
    notes = _notes(reading.model)
    return Heading(title, (about, sides, *notes), NEURONS, tuple(reading.groups()))


def heading_of_vectors(group: "VectorGroup", filters: Sequence[str]) -> Heading:
    """Above the vectors of a group."""
    title = joined(model_name(group.model.provenance), group.name)
    settings = {"norm": group.norm, "filters": filters}
    sides = "Each vector's stronger end; − marks the lower one."
    about = joined(sides, settings_line(settings))
    return Heading(title, (about, *_notes(group.model)), VECTORS, ("tokens",))


def heading_of_related(reading: "FeedForwardReading", *, absolute: bool = False) -> Heading:
    """Above the share of related key-value pairs by layer."""
    title = joined(model_name(reading.model.provenance), related_rule(0.15, 100, absolute=absolute))
    about = joined(
        "share of a layer's neurons, beside that of shuffled pairs, then the pairs most alike",
        settings_line({"norm": reading.norm}),
    )
    parts = [name for name in reading.groups() if name != "value"]
    where = f"{'layer':>5} {'':>6} " + "".join(f" {name:>6} {'shuffled':>8}" for name in parts)
    return Heading(title, (about, *_notes(reading.model)), where + "  ", ("pairs",))


def summary_of_related(results: Sequence[RelatedPairs]) -> Text:
    """Below the layers: the mean share over all of them."""
    names = list(results[0].share)
    shares = [
        f"{name} {_mean(r.share[name] for r in results):.1%} "
        f"(shuffled {_mean(r.share_shuffled[name] for r in results):.1%})"
        for name in names
    ]
    return words("mean over layers: " + ", ".join(shares), "bold")


def _notes(model: "Model") -> tuple[str, ...]:
    """What a reader of the weights must know, scores of W_QK apart."""
    return tuple(note for note in model.notes if "W_QK" not in note)


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)
