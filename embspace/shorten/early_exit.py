"""Early exit, counted: what is saved by leaving early, and how often the answer stays. [DIN] §6"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..checking import indices
from ..errors import EmbspaceError
from ..intervals import Bootstrap, spanned
from ..live.capture import read_text
from ..live.running import start_model
from ..maps.decoding import identity, through
from ..maps.maps import Maps
from ..maps.run_record import batch_changes, record_of
from ..maps.score import require_own_kind
from ..maps.solve import Kind
from ..progress import Progress
from ..text.passages import passages
from ..text.text import AnyText, Text
from .exit_result import ExitChoice, ExitGain, ExitPoint, Exits
from .exit_rules import FIRST, LAMBDAS, TAU, finite, histogram, margins, ranks_at
from .halves import halves
from .outcomes import Outcomes, Watched
from .planner import Planner, Way, blocks_at, drawn_means, front, table_of

if TYPE_CHECKING:
    from ..weights.model import Model

KS = (1, 5, 10)
TARGET = 0.95
RULES = ("fixed", "confidence")


def exits(
    model: "Model",
    maps: Maps | str | Path | None = None,
    text: AnyText | None = None,
    *,
    target: float = TARGET,
    lambdas: Sequence[float] | None = None,
    layers: Sequence[int] | None = None,
    rows: int | None = None,
    kind: Kind | None = None,
    progress: Progress | None = None,
) -> Exits:
    """Blocks run against Precision@k when predictions leave early, through maps and the identity.

    Fixed: every row leaves after l blocks. Confidence: a row leaves after the first block l ≥ 1
    whose decoded prediction has p₁ − p₂ > 0.9 λ + 0.1 exp(−τ t / N), τ = 4, t its position from 0,
    N the mean of t + 1 over the calibration rows, as in the paper's code: the mean length of what
    a causal model reads (a masked model reads on after t).
    The λ and the number of blocks for the `target` share of unchanged answers are chosen on half of
    the held-out lines, all figures are of the other half. layers: exits allowed there only;
    rows: at most so many lines in each half. kind: of maps fitted here ("mat").
    One forward pass a text; memory does not grow with the number of λ. [DIN] §6
    Raises TextError, MapsError, ModelError.
    """
    require_own_kind(maps, kind)
    if not 0 < target <= 1:
        raise EmbspaceError(f"target must lie in 0 … 1, got {target}.")
    lambdas = LAMBDAS if lambdas is None else tuple(finite(lam) for lam in lambdas)
    text = Text.of(text, model)
    allowed = None if layers is None else indices(layers, model.n_layers, "layer")
    half = halves(model, text, maps, rows=rows, kind=kind or "mat", progress=progress)
    taken = passages(model, text, (*half.calibration, *half.scoring))
    watched = Watched(model, {half.maps.kind: through(half.maps), "id": identity})
    running = start_model(model)
    for states in read_text(running, taken, progress=progress):
        watched.add(states)
    found = watched.outcomes()
    work = _Measured(
        {name: each.of_lines(set(half.calibration)) for name, each in found.items()},
        {name: each.of_lines(set(half.scoring)) for name, each in found.items()},
        allowed,
        check_cost(model),
        text.seed,
    )
    changes, said = batch_changes(running, taken.passages)
    record = record_of(model, taken) | changes
    notes = (*half.notes, *taken.notes(), *said)
    return work.result(model, half.maps, record, target, lambdas, notes)


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
        self.at_target: dict[tuple[str, str], torch.Tensor] = {}  # saved in each draw

    def point(self, way: Way) -> ExitPoint:
        """One way on the scoring rows."""
        outcomes = self.scoring[way.map]
        n_layers = outcomes.n_layers
        left = self._left(way)
        ranks = ranks_at(outcomes, left)
        saved = 1 - left.double() / n_layers
        same = (ranks == 0).double()
        return ExitPoint(
            way.map,
            way.rule,
            way.at,
            float(left.double().mean()),
            float(saved.mean()),
            self.draws.mean(saved),
            float(saved.mean()) - self.cost * self._looks(way, left, n_layers) / n_layers,
            {k: float((ranks < k).double().mean()) for k in KS},
            self.draws.share(same),
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
        planner = self.planners[name]
        planned = planner.choose(rule, target)
        point, n = self.point(planned.way), self.scoring[name].n_layers
        table = table_of(planner.ways[rule], self.scoring[name], self.margins[name])
        blocks, agreement = drawn_means(self.draws, table)
        again = planned.drawn[:, None]  # the way that each draw of calibration texts chose
        saved, kept = (x.gather(1, again)[:, 0] for x in (1 - blocks / n, agreement))
        texts = min(self.draws.n_texts, planner.draws.n_texts)
        same = (ranks_at(self.scoring[name], self._left(planned.way)) == 0).double()
        point = replace(
            point,
            saved_interval=spanned(saved, texts),
            precision_interval=self.draws.share(same, float(kept.var())),
        )
        run, stay = (each.mean(1)[None] for each in table)
        self.at_target[name, rule] = 1 - blocks_at(blocks, agreement, target) / n
        return ExitChoice(
            (planned.low, planned.high),
            planned.agreement,
            point,
            1 - float(blocks_at(run, stay, target)) / n,
            spanned(self.at_target[name, rule], self.draws.n_texts),
        )

    def _left(self, way: Way) -> torch.Tensor:
        """Blocks that each scoring row runs."""
        return way.exits(self.scoring[way.map], self.margins[way.map])

    def gains(self, choices: Sequence[ExitChoice]) -> tuple[ExitGain, ...]:
        """Each map over the identity, by rule, where both keep the target."""
        saved = {(c.point.map, c.point.rule): c.saved_at_target for c in choices}
        return tuple(
            ExitGain(
                name,
                rule,
                saved[name, rule] - saved["id", rule],
                spanned(
                    self.at_target[name, rule] - self.at_target["id", rule], self.draws.n_texts
                ),
            )
            for name, rule in saved
            if name != "id"
        )

    def result(
        self,
        model: "Model",
        maps: Maps,
        record: dict[str, Any],
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
            **record,
            "rows_calibration": self.n_calibration,
            "rows": len(next(iter(self.scoring.values()))),
            "rows_fitted": maps.about.get("rows"),
        }
        said = (*notes, *_plainly(choices))
        return Exits(
            n_layers,
            tuple(self.point(way) for way in ways),
            choices,
            self.gains(choices),
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
