"""Early exit, counted: what is saved by leaving early, and how often the answer stays. [DIN] §6"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...checking import indices
from ...errors import EmbspaceError
from ...models.corpus import Corpus, default_corpus, read_corpus
from ...models.passages import passages
from ...models.running import run
from ...models.states import BATCH_TOKENS, capture
from ...results import Result
from ..decoding import identity, through
from ..fitting import RUN_DTYPES, Progress
from ..halves import halves
from ..intervals import Bootstrap
from ..maps import Maps
from .outcomes import Outcomes, Watched
from .planner import Planned, Planner, Way, front
from .rules import FIRST, LAMBDAS, TAU, histogram, margins, ranks_at

if TYPE_CHECKING:
    from ...models.model import Model

KS = (1, 5, 10)
TARGET = 0.95
RULES = ("fixed", "confidence")
TAKING = ("positions", "max_tokens", "special", "skip_first")


@dataclass(frozen=True)
class ExitPoint:
    """One way of leaving early on the scoring rows.

    map: id or the kind of maps; rule: fixed (at: blocks run) or confidence (at: λ); blocks: mean
    blocks run; saved: 1 − blocks / L; net: the same when every prediction looked at on the way is
    paid for in blocks, negative where looking costs more than it saves; precision: share of rows
    whose answer is among the model's own k first. Intervals: 95 %, bootstrap over texts.
    """

    map: str
    rule: str
    at: float
    blocks: float
    saved: float
    saved_interval: tuple[float, float]
    net: float
    precision: dict[int, float]
    precision_interval: tuple[float, float]
    histogram: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields, precision by k as precision@k."""
        found = dict(vars(self))
        precision = found.pop("precision")
        found |= {f"precision@{k}": value for k, value in precision.items()}
        return found | {
            "saved_interval": list(self.saved_interval),
            "precision_interval": list(self.precision_interval),
            "histogram": list(self.histogram),
        }


@dataclass(frozen=True)
class ExitChoice:
    """The way that one lens and rule takes for the target: chosen on calibration rows.

    at_interval: of the choice, when calibration texts are drawn again; calibrated: agreement on
    the calibration rows; point: the same way on the scoring rows.
    """

    at_interval: tuple[float, float]
    calibrated: float
    point: ExitPoint

    def to_dict(self) -> dict[str, Any]:
        """The choice and its point in one."""
        chosen = {"at_interval": list(self.at_interval), "calibrated": self.calibrated}
        return self.point.to_dict() | chosen


@dataclass(frozen=True)
class Exits(Result):
    """Early exit of a model: the curve of every lens and rule, choices for a target, the front.

    points: the curve (fixed: every layer; confidence: every λ); choices: one for each lens and
    rule; front: ways that were unbeaten on the calibration rows, by blocks run, on scoring rows.
    settings: target, mean_length (N of the rule), rows, check_cost (blocks that one look costs).
    """

    n_layers: int
    points: tuple[ExitPoint, ...]
    choices: tuple[ExitChoice, ...]
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
        found[f"{name}_low"], found[f"{name}_high"] = found.pop(f"{name}_interval")
    found["histogram"] = " ".join(map(str, found["histogram"]))
    return found


def exits(
    model: "Model",
    maps: Maps | str | Path | None = None,
    text: str | Path | Corpus | list[str] | None = None,
    *,
    target: float = TARGET,
    lambdas: Sequence[float] | None = None,
    layers: Sequence[int] | None = None,
    lines: Iterable[int] | None = None,
    rows: int | None = None,
    column: str | None = None,
    seed: int = 0,
    run_dtype: str = "float32",
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress | None = None,
    **options: Any,
) -> Exits:
    """Blocks run against Precision@k when predictions leave early, through maps and the identity.

    Fixed: every row leaves after l blocks. Confidence: a row leaves after the first block l ≥ 1
    whose decoded prediction has p₁ − p₂ > 0.9 λ + 0.1 exp(−τ t / N), τ = 4, t its position from 0,
    N the mean of t + 1 over the calibration rows, as in the paper's code: the mean length of what
    a causal model reads (a masked model reads on after t).
    The λ and the number of blocks for the `target` share of unchanged answers are chosen on half of
    the held-out lines, all figures are of the other half. layers: exits allowed there only;
    rows: at most so many lines in each half. options: positions, max_tokens, special, skip_first.
    One forward pass a text; memory does not grow with the number of λ. [DIN] §6
    Raises TextError, MapsError, ModelError.
    """
    if not 0 < target <= 1:
        raise EmbspaceError(f"target must lie in 0 … 1, got {target}.")
    lambdas = LAMBDAS if lambdas is None else tuple(_finite(lam) for lam in lambdas)
    corpus = default_corpus(model) if text is None else read_corpus(text, column=column)
    allowed = None if layers is None else indices(layers, model.n_layers, "layer")
    taking = {name: options[name] for name in TAKING if name in options}
    half = halves(
        model, corpus, maps, lines=lines, rows=rows, seed=seed, progress=progress, **taking
    )
    chosen = (*half.calibration, *half.scoring)
    taken = passages(model, corpus, lines=chosen, seed=seed, **taking)
    watched = Watched(model, {half.maps.kind: through(half.maps), "id": identity})
    running = run(model, dtype=RUN_DTYPES[run_dtype], attention="fast")
    dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
    n_read = 0
    for states in capture(running, taken.passages, batch_tokens=batch_tokens, dtype=dtype):
        watched.add(states)
        n_read += states.n_tokens
        if progress:
            progress("score", n_read, taken.n_tokens)
    found = watched.outcomes()
    work = _Measured(
        {name: each.of_lines(set(half.calibration)) for name, each in found.items()},
        {name: each.of_lines(set(half.scoring)) for name, each in found.items()},
        allowed,
        check_cost(model),
        seed,
    )
    return work.result(model, half.maps, corpus, target, lambdas, (*half.notes, *taken.notes()))


def _finite(lam: Any) -> float:
    try:
        if abs(float(lam)) < float("inf"):
            return float(lam)
    except (TypeError, ValueError):
        pass
    raise EmbspaceError(f"λ must be a number, not {str(lam)[:40]!r}.")


def check_cost(model: "Model") -> float:
    """What decoding one state costs, in blocks: (V d + d²) over the weights of a block."""
    prefix = model.layout.block(0)
    names = [name for name in model.checkpoint.names if name.startswith(prefix)]
    shapes = [model.checkpoint.shape(name) for name in names]
    weights = sum(torch.Size(shape).numel() for shape in shapes if len(shape) > 1)
    return (len(model.vocabulary) * model.d + model.d**2) / max(weights, 1)


class _Measured:
    """Calibration and scoring rows of every lens, and what follows from them."""

    def __init__(
        self,
        calibration: dict[str, Outcomes],
        scoring: dict[str, Outcomes],
        layers: list[int] | None,
        cost: float,
        seed: int,
    ) -> None:
        self.scoring, self.cost = scoring, cost
        first = next(iter(calibration.values()))
        self.mean_length = float((first.positions + 1).double().mean())
        self.margins = {n: margins(o, self.mean_length, layers) for n, o in scoring.items()}
        self.layers = layers
        self.draws = Bootstrap(next(iter(scoring.values())).lines, seed=seed)
        self.planners = {
            name: Planner(name, outcomes, self.mean_length, layers, seed)
            for name, outcomes in calibration.items()
        }
        self.n_calibration = len(first)

    def point(self, way: Way) -> ExitPoint:
        """One way on the scoring rows."""
        outcomes = self.scoring[way.map]
        n_layers = outcomes.n_layers
        left = way.exits(outcomes, self.margins[way.map])
        ranks = ranks_at(outcomes, left)
        saved = 1 - left.double() / n_layers
        same = (ranks == 0).double()
        return ExitPoint(
            way.map,
            way.rule,
            way.at,
            float(left.double().mean()),
            float(saved.mean()),
            self.draws.interval(saved),
            float(saved.mean()) - self.cost * self._looks(way, left, n_layers) / n_layers,
            {k: float((ranks < k).double().mean()) for k in KS},
            self.draws.interval(same),
            histogram(left, n_layers),
        )

    def _looks(self, way: Way, left: torch.Tensor, n_layers: int) -> float:
        """Predictions looked at beside the one that is given, in the mean."""
        if way.rule == "fixed":
            return 0.0
        allowed = self.layers if self.layers is not None else range(FIRST, n_layers)
        looks = sum((left >= l).double() for l in allowed if l >= FIRST)
        given = (left < n_layers).double()  # the last look of a row that leaves is its answer
        return float(torch.as_tensor(looks - given).mean())

    def choice(self, name: str, rule: str, target: float) -> ExitChoice:
        """The way of one lens and rule for a target."""
        planned: Planned = self.planners[name].choose(rule, target)
        point = self.point(planned.way)
        return ExitChoice((planned.low, planned.high), planned.agreement, point)

    def result(
        self,
        model: "Model",
        maps: Maps,
        corpus: Corpus,
        target: float,
        lambdas: Sequence[float],
        notes: tuple[str, ...],
    ) -> Exits:
        """Everything measured."""
        n_layers = model.n_layers
        ways = [Way(n, "fixed", l) for n in self.scoring for l in range(n_layers + 1)]
        ways += [Way(n, "confidence", lam) for n in self.scoring for lam in sorted(lambdas)]
        choices = tuple(self.choice(n, rule, target) for n in self.scoring for rule in RULES)
        every = [p for planner in self.planners.values() for r in RULES for p in planner.points(r)]
        settings = {
            "target": target,
            "kind": maps.kind,
            "mean_length": self.mean_length,
            "tau": TAU,
            "layers": self.layers,
            "check_cost": self.cost,
            "text": corpus.source,
            "text_hash": corpus.digest,
            "rows_calibration": self.n_calibration,
            "rows": len(next(iter(self.scoring.values()))),
            "rows_fitted": maps.about.get("rows"),
        }
        said = (*notes, *_plainly(choices))
        return Exits(
            n_layers,
            tuple(self.point(way) for way in ways),
            choices,
            tuple(self.point(way) for way in front(every)),
            settings,
            tuple(dict.fromkeys(said)),
            model.provenance,
        )


def _plainly(choices: Sequence[ExitChoice]) -> list[str]:
    """Sentences where nothing is gained."""
    said = []
    for choice in choices:
        point = choice.point
        name = f"{point.map}, {point.rule} exit"
        if point.saved <= 0:
            said.append(f"{name}: no row leaves early at this target, so nothing is saved.")
        elif point.net <= 0:
            said.append(
                f"{name}: the predictions looked at on the way cost more than the blocks saved "
                f"({point.net:+.1%}): look after fewer blocks (layers)."
            )
    return said
