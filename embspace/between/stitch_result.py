"""What a sweep over stitched models found."""

from dataclasses import dataclass, field
from typing import Any

from ..results import Result
from .accuracy import Accuracy

REACHED = 0.7  # the accuracy that the paper counts stitched models by


@dataclass(frozen=True)
class Cut:
    """One stitched model: `kept` blocks of A, `transplanted` last blocks of B.

    `accuracy`: on all texts; `choosing`, `scoring`: on either half of them; `turned`, `shuffled`:
    on all texts with a random kernel of equal spectrum, and with the shared tokens paired at
    random (None where no controls were asked for).
    """

    kept: int
    transplanted: int
    accuracy: Accuracy
    choosing: Accuracy
    scoring: Accuracy
    turned: Accuracy | None = None
    shuffled: Accuracy | None = None

    def to_dict(self) -> dict[str, Any]:
        """Both counts, accuracies with their intervals, and both controls."""
        parts = ("choosing", "scoring", "turned", "shuffled")
        found = {"kept": self.kept, "transplanted": self.transplanted} | self.accuracy.to_dict()
        for name in parts:
            part: Accuracy | None = getattr(self, name)
            found[name] = None if part is None else part.to_dict()
        return found


@dataclass(frozen=True)
class Stitching(Result):
    """Accuracies of A's first blocks stitched onto B's last ones, for every cut of a sweep.

    `best` did best on one half of the texts; what may be said of it is `best.scoring`, its
    accuracy on the other half. `own`: B alone, on all texts, and on that other half.
    """

    cuts: tuple[Cut, ...]
    best: Cut
    own: Accuracy
    own_scoring: Accuracy
    chance: float
    labels: tuple[str, ...]
    kernel: dict[str, Any] = field(default_factory=dict)
    coverage: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def share_reached(self) -> float:
        """Share of the cuts with 70 % or more right on all texts; the paper's is of models."""
        return sum(cut.accuracy.share >= REACHED for cut in self.cuts) / len(self.cuts)

    def to_dict(self) -> dict[str, Any]:
        """Cuts, the best one, B's own accuracy, chance, and how it was found."""
        return {
            "cuts": [cut.to_dict() for cut in self.cuts],
            "best": self.best.to_dict(),
            "own": self.own.to_dict(),
            "own_scoring": self.own_scoring.to_dict(),
            "chance": self.chance,
            "share_reached": self.share_reached,
            "labels": list(self.labels),
            "kernel": self.kernel,
            "coverage": self.coverage,
            "settings": self.settings,
            "provenance": self.provenance,
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a cut: accuracy and interval on all texts, halves and controls as shares."""
        return [
            {"kept": cut.kept, "transplanted": cut.transplanted}
            | cut.accuracy.to_dict()
            | {
                name: None if part is None else part.share
                for name, part in (
                    ("choosing", cut.choosing),
                    ("scoring", cut.scoring),
                    ("turned", cut.turned),
                    ("shuffled", cut.shuffled),
                )
            }
            | {"own": self.own.share, "chance": self.chance, "best": cut is self.best}
            for cut in self.cuts
        ]
