"""Early exit as a result: ways of leaving, what each saves and how often the answer stays."""

from dataclasses import dataclass, field
from typing import Any

from ..errors import EmbspaceError
from ..intervals import Interval
from ..results import Record, Result


@dataclass(frozen=True)
class ExitPoint:
    """One way of leaving early on the scoring rows.

    map: id or the kind of maps; rule: fixed (at: blocks run) or confidence (at: λ); blocks: mean
    blocks run; saved: 1 − blocks / L; net: the same when every prediction looked at on the way is
    paid for in blocks, negative where looking costs more than it saves; precision: share of rows
    whose answer is among the model's own k first. Intervals: 95 %, over texts (see `intervals`);
    None where there are too few or nothing varies.
    """

    map: str
    rule: str
    at: float
    blocks: float
    saved: float
    saved_interval: Interval
    net: float
    precision: dict[int, float]
    precision_interval: Interval
    histogram: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields, precision by k as precision@k."""
        found = dict(vars(self))
        precision = found.pop("precision")
        found |= {f"precision@{k}": value for k, value in precision.items()}
        return found | {
            "saved_interval": self.saved_interval and list(self.saved_interval),
            "precision_interval": self.precision_interval and list(self.precision_interval),
            "histogram": list(self.histogram),
        }


@dataclass(frozen=True)
class ExitChoice:
    """The way that one lens and rule takes for the target: chosen on calibration rows.

    at_interval: of the choice, when calibration texts are drawn again; calibrated: agreement on
    the calibration rows; point: the same way on the scoring rows, its intervals with the choice
    made again in every draw. What stays on the scoring rows is near the target only, so lenses are
    compared by saved_at_target: saved where exactly the target stays, read off the sweep on the
    scoring rows (between two neighbouring ways, as a mixture of both).
    """

    at_interval: tuple[float, float]
    calibrated: float
    point: ExitPoint
    saved_at_target: float
    saved_at_target_interval: Interval

    def to_dict(self) -> dict[str, Any]:
        """The choice and its point in one."""
        ends = self.saved_at_target_interval
        return self.point.to_dict() | {
            "at_interval": list(self.at_interval),
            "calibrated": self.calibrated,
            "saved_at_target": self.saved_at_target,
            "saved_at_target_interval": ends and list(ends),
        }


@dataclass(frozen=True)
class ExitGain(Record):
    """What maps save over the identity where both keep exactly the target, by the same draws."""

    map: str
    rule: str
    saved: float
    saved_interval: Interval


@dataclass(frozen=True)
class Exits(Result):
    """Early exit of a model: the curve of every lens and rule, choices for a target, the front.

    points: the curve (fixed: every layer; confidence: every λ); choices: one for each lens and
    rule; gains: maps over the identity at equal retention; front: ways that were unbeaten on the
    calibration rows, by blocks run, on scoring rows.
    settings: target, mean_length (N of the rule), rows, check_cost (blocks that one look costs).
    """

    n_layers: int
    points: tuple[ExitPoint, ...]
    choices: tuple[ExitChoice, ...]
    gains: tuple[ExitGain, ...]
    front: tuple[ExitPoint, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def choice(self, map: str = "mat", rule: str = "confidence") -> ExitChoice:
        """The choice of one lens and rule. Raises EmbspaceError where there is none."""
        for one in self.choices:
            if (one.point.map, one.point.rule) == (map, rule):
                return one
        raise EmbspaceError(f"there is no {rule} exit of {map} here.")

    def to_dict(self) -> dict[str, Any]:
        """Choices, curve and front, settings, notes and provenance."""
        return {
            "n_layers": self.n_layers,
            "choices": [choice.to_dict() for choice in self.choices],
            "gains": [gain.to_dict() for gain in self.gains],
            "front": [point.to_dict() for point in self.front],
            "points": [point.to_dict() for point in self.points],
            "settings": self.settings,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """The curve, one row a point; then the choices."""
        kinds = [("curve", p) for p in self.points]
        kinds += [("chosen", c.point) for c in self.choices]
        kinds += [("front", p) for p in self.front]
        return [{"of": kind} | _flat(point) for kind, point in kinds]


def _flat(point: ExitPoint) -> dict[str, Any]:
    found = point.to_dict()
    for name in ("saved", "precision"):
        ends = found.pop(f"{name}_interval") or (None, None)
        found[f"{name}_low"], found[f"{name}_high"] = ends
    found["histogram"] = " ".join(map(str, found["histogram"]))
    return found
