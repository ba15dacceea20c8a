"""What fine-tuning changed, as results."""

from dataclasses import dataclass, field
from typing import Any

from ..results import Record, Result
from .task_words import WordScore


@dataclass(frozen=True)
class MovedRow(Record):
    """One parameter vector that moved: where it is, how far, and both ends of its change x.

    norm: ‖x‖; share: ‖x‖ over the vector's own norm in the base (None for the classifier, which
    has no base); up, down: tokens of the largest scores of x E and of -x E.
    """

    where: str
    norm: float
    share: float | None
    up: tuple[str, ...]
    down: tuple[str, ...]


@dataclass(frozen=True)
class LayerChange(Record):
    """How one group of one layer moved: mean and largest norms, and the rows that moved most."""

    group: str
    layer: int
    n_rows: int
    n_moved: int
    norm: float
    share: float
    rows: tuple[MovedRow, ...]
    words: WordScore | None = None


@dataclass(frozen=True)
class Difference(Result):
    """Tuned minus base, row by row, read both ways in vocabulary space. [DAR] §4.3, App. D.

    `layers`: every group and layer; `words`: for each group the score of its moved rows of all
    layers together; `classifier`: what training did to the head's directions by label, less the
    labels' mean.
    """

    layers: tuple[LayerChange, ...]
    words: dict[str, WordScore | None]
    classifier: tuple[MovedRow, ...]
    word_list: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, in order."""
        return tuple(dict.fromkeys(change.group for change in self.layers))

    def of_group(self, name: str) -> tuple[LayerChange, ...]:
        """The layers of one group."""
        return tuple(change for change in self.layers if change.group == name)

    def rows(self) -> list[dict[str, Any]]:
        """One row a vector that moved, and one a label of the classifier."""
        moved = [(change.group, change.layer, row) for change in self.layers for row in change.rows]
        moved += [("classifier", None, row) for row in self.classifier]
        return [
            {"group": group, "layer": layer}
            | row.to_dict()
            | {"up": " ".join(row.up), "down": " ".join(row.down)}
            for group, layer, row in moved
        ]
