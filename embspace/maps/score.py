"""How good maps are on text they were not fitted on, beside the identity. [DIN] §3-4"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..checking import indices
from ..errors import EmbspaceError, MapsError, TextError
from ..intervals import Bootstrap, Interval
from ..live.capture import read_text
from ..live.running import start_model
from ..progress import Progress
from ..results import Result
from ..text.passages import Passages, passages
from ..text.splits import different, split
from ..text.text import AnyText, Text, mark_of
from .decoding import Comparison, Outcome, identity, through, why_no_head
from .fit import fit
from .imported import read_maps
from .maps import Maps
from .run_record import batch_changes, record_of
from .solve import Kind, Solution, r2_of, r2_of_identity
from .sums import Plan, Sums

if TYPE_CHECKING:
    from ..weights.model import Model

KS = (1, 5, 10)


@dataclass(frozen=True)
class LayerScore:
    """One way of decoding one layer: the mean over held-out positions and its 95 % interval.

    Keys: precision@1, precision@5, precision@10 (0 to 1), surprisal and kl (nats). A mean that the
    texts tell no interval of has None there: see `intervals`.
    """

    layer: int
    means: dict[str, float]
    intervals: dict[str, Interval]

    def to_dict(self) -> dict[str, Any]:
        """Means, and each interval beside its mean."""
        ends = {f"{name}_interval": pair and list(pair) for name, pair in self.intervals.items()}
        return self.means | ends

    def flat(self) -> dict[str, float | None]:
        """Means, then both ends of each interval, a name each."""
        ends = {
            f"{name}_{side}": pair and pair[n]
            for name, pair in self.intervals.items()
            for n, side in enumerate(("low", "high"))
        }
        return self.means | ends


@dataclass(frozen=True)
class Scores(Result):
    """Held-out r² of every pair, and how each layer decodes, for each kind of map and for id.

    r2: kind -> {"0-30": r²}; layers: kind -> one score a layer (empty without a prediction head).
    """

    r2: dict[str, dict[str, float | None]]
    layers: dict[str, tuple[LayerScore, ...]]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """r² by pair, scores by layer, settings, notes and provenance."""
        layers = {
            kind: {str(score.layer): score.to_dict() for score in each}
            for kind, each in self.layers.items()
        }
        return {
            "r2": self.r2,
            "layers": layers,
            "settings": self.settings,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer and kind; r² to the last state beside it."""
        last = max(
            (int(pair.split("-")[1]) for pair in next(iter(self.r2.values()), {})), default=0
        )
        found = []
        for kind, each in self.layers.items():
            for score in each:
                r2 = self.r2.get(kind, {}).get(f"{score.layer}-{last}")
                found.append({"layer": score.layer, "kind": kind, "r2": r2} | score.flat())
        return found or [
            {"pair": pair, "kind": kind, "r2": value}
            for kind, each in self.r2.items()
            for pair, value in each.items()
        ]


def score(
    model: "Model",
    maps: Maps | str | Path | None = None,
    text: AnyText | None = None,
    *,
    layers: Sequence[int] | None = None,
    kind: Kind | None = None,
    progress: Progress | None = None,
) -> Scores:
    """r² of maps and of the identity for every pair; Precision@k, Surprisal and KL by layer.

    maps: fitted ones (or a file of them); None fits all pairs on the spot, on lines that are not
    scored. text: scored are the lines that it holds out (default: with maps, all that they were
    not fitted on; else a quarter, drawn). layers: which to decode (default 0 … L-1). kind: of maps
    fitted here ("mat"); for more of a fit see `fit`.
    A model without prediction head gets r² only. Raises TextError, MapsError, ModelError.
    """
    require_own_kind(maps, kind)
    if layers is not None:  # before anything is fitted
        indices(layers, model.n_layers + 1, "layer")
    text = Text.of(text, model)
    if maps is None:
        lines = split(text)
        here = replace(text, fit=lines.fit, held_out=lines.score)
        maps = fit(model, here, kind=kind or "mat", pairs="all", keep="final", progress=progress)
        chosen, known, notes = lines.score, True, (*maps.about["notes"], *lines.notes)
    else:
        maps = maps.require(model) if isinstance(maps, Maps) else read_maps(maps, model)
        if any(not pair.source.isdigit() for pair in maps.pairs):
            raise MapsError("these maps are of sub-modules, not of states: see `submodules`.")
        chosen, notes = _unseen(text, maps)
        known, notes = False, (*maps.recalled, *notes)
    taken = passages(model, text, chosen)
    work = _Scoring(model, maps, layers, need_r2=not known)
    work.run(taken, progress)
    return work.result(record_of(model, taken), (*notes, *taken.notes()))


def require_own_kind(maps: Any, kind: str | None) -> None:
    """Raise EmbspaceError where a kind to fit is asked for beside maps that are fitted already."""
    if maps is not None and kind is not None:
        raise EmbspaceError(
            f"kind {kind!r} is of maps that are fitted here, but maps are given: leave one out."
        )


def _unseen(text: Text, maps: Maps) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Lines to score with given maps; those the maps were fitted on are left out or named."""
    fitted = set(maps.about.get("marks") or ())
    unknown = () if fitted else ("It is not recorded which lines the maps were fitted on.",)
    if isinstance(text.held_out, tuple):
        chosen = text.held_out
        indices(chosen, len(text), "line", error=TextError)
        again = sum(mark_of(text.lines[i]) in fitted for i in chosen)
        said = (
            f"{again} of the {len(chosen)} lines were also fitted: their scores are not held out."
        )
        twice = len(chosen) - len(different(text, chosen))
        repeated = f"{twice} of the {len(chosen)} lines repeat others: intervals are too narrow."
        return chosen, (*((said,) if again else unknown), *((repeated,) if twice else ()))
    kept = tuple(different(text, range(len(text)), fitted))
    if not kept:
        raise TextError(f"the maps were fitted on every line of {text.source}: give other text.")
    left_out = len(text) - len(kept)
    said = f"{left_out} lines that the maps were fitted on, or that came before, were left out."
    return kept, ((said,) if left_out else unknown)


class _Scoring:
    """One pass over the lines to score."""

    def __init__(
        self, model: "Model", maps: Maps, layers: Sequence[int] | None, *, need_r2: bool
    ) -> None:
        self.model, self.maps = model, maps
        final = model.n_layers
        self.sums = Sums(plan_of(maps), model.d, device=model.device) if need_r2 else None
        every = [l for l in range(final) if (l, final) in maps]
        asked = every if layers is None else indices(layers, final + 1, "layer")
        without = [l for l in asked if l not in every and l != final]
        if without:
            raise MapsError(f"no map of layer {without[0]} to the last state was fitted.")
        self.layers = asked
        self.reason = why_no_head(model)
        self.record: dict[str, Any] = {}
        self.notes: tuple[str, ...] = ()
        lenses = {maps.kind: through(maps), "id": identity}
        self.comparison = None if self.reason else Comparison(model, lenses, self.layers)
        self.rows = 0

    def run(self, taken: Passages, progress: Progress | None) -> None:
        """Capture, sum and decode batch by batch."""
        if self.sums is None and self.comparison is None:
            return
        running = start_model(self.model)
        for states in read_text(running, taken, progress=progress):
            if self.sums is not None:
                self.sums.add({str(l): x for l, x in states.layers.items()})
            if self.comparison is not None:
                self.comparison.add(states)
        if self.comparison is not None:
            self.record, self.notes = batch_changes(running, taken.passages)

    def result(self, record: dict[str, Any], notes: tuple[str, ...]) -> Scores:
        """All scores of the pass."""
        of_maps, of_id = self._r2()
        r2 = {self.maps.kind: of_maps, "id": of_id}
        settings = {
            "kind": self.maps.kind,
            "rows_fitted": self.maps.about.get("rows"),
            **record,
            **self.record,
        }
        said = (*notes, *self.notes, *((self.reason,) if self.reason else ()))
        return Scores(
            r2,
            self._layer_scores(record["seed"]),
            settings,
            tuple(dict.fromkeys(said)),
            self.model.provenance,
        )

    def _r2(self) -> tuple[dict[str, float | None], dict[str, float | None]]:
        if self.sums is None:
            found = {f"{p.source}-{p.target}": p for p in self.maps.pairs}
            return {n: p.r2 for n, p in found.items()}, {n: p.r2_id for n, p in found.items()}
        return r2_of_pairs(self.maps, self.sums)

    def _layer_scores(self, seed: int) -> dict[str, tuple[LayerScore, ...]]:
        if self.comparison is None:
            return {}
        bootstrap = Bootstrap(self.comparison.line_numbers(), seed=seed)
        return {
            kind: tuple(self._layer_score(kind, l, bootstrap) for l in self.layers)
            for kind in self.comparison.lenses
        }

    def _layer_score(self, kind: str, layer: int, bootstrap: Bootstrap) -> LayerScore:
        assert self.comparison is not None
        return layer_score(self.comparison.outcome(kind, layer), layer, bootstrap)


def layer_score(outcome: Outcome, layer: int, bootstrap: Bootstrap) -> LayerScore:
    """Means and intervals of what decoding a layer yields."""
    hits = {f"precision@{k}": (outcome.rank < k).double() for k in KS}
    values = {"surprisal": outcome.surprisal, "kl": outcome.kl}
    means = {name: float(v.mean()) for name, v in (hits | values).items()}
    intervals = {name: bootstrap.share(v) for name, v in hits.items()}
    return LayerScore(layer, means, intervals | {n: bootstrap.mean(v) for n, v in values.items()})


def r2_of_pairs(maps: Maps, sums: Sums) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """r² of given maps, and of the identity, on the rows summed: {"0-30": r²}."""
    of_maps, of_id = {}, {}
    for source, targets in sums.plan.targets.items():
        A = torch.cat([maps[source, t].double() for t in targets], 1)
        b = _intercepts(maps, source, targets)
        b = None if b is None else b.to(sums.device)
        solution = Solution(targets, A.to(sums.device), b, 0, 0.0, None)
        for target, each in r2_of(sums, source, solution).items():
            of_maps[f"{source}-{target}"] = _number(each.mean)
        for target, each in r2_of_identity(sums, source).items():
            of_id[f"{source}-{target}"] = _number(each.mean)
    return of_maps, of_id


def _intercepts(maps: Maps, source: str, targets: tuple[str, ...]) -> torch.Tensor | None:
    names = [f"b.{source}-{t}" for t in targets]
    if names[0] not in maps.tensors:
        return None
    return torch.cat([maps.tensors[name].double() for name in names])


def plan_of(maps: Maps) -> Plan:
    """The pairs of given maps, layers in order."""
    targets: dict[str, tuple[str, ...]] = {}
    for pair in sorted(maps.pairs, key=lambda p: (int(p.source), int(p.target))):
        targets[pair.source] = (*targets.get(pair.source, ()), pair.target)
    used = {int(space) for space in targets} | {int(t) for row in targets.values() for t in row}
    return Plan(tuple(str(l) for l in sorted(used)), targets)


def _number(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
