"""Several lenses on the same held-out positions: how good each is, and what it cost. [DIN] §4"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import indices
from ..errors import MapsError, TextError
from ..intervals import Bootstrap
from ..live.capture import States, read_text
from ..live.running import start_model
from ..progress import Progress
from ..results import Result
from ..text.passages import Encoder, Passages, passages
from ..text.splits import split
from ..text.text import AnyText, Text, mark_of
from .decoding import Head, identity, outcome_of, through
from .lens_rows import SLICE
from .maps import Maps
from .named import Asked, named_maps
from .run_record import batch_changes, record_of
from .score import KS, LayerScore

if TYPE_CHECKING:
    from ..weights.model import Model

METRICS = {
    "kl": "KL",
    "cross_entropy": "cross-entropy",
    **{f"precision@{k}": f"P@{k}" for k in KS},
    "surprisal": "Surprisal",
}
SHARES = tuple(f"precision@{k}" for k in KS)
DEFAULT = ("id", "mat", "affine", "refined")
MOST_ROWS = 1000  # positions scored unless lines are given


@dataclass(frozen=True)
class LensCost:
    """What a lens took: rows and seconds of its fit (None where its record lacks them), bytes."""

    rows: int | None
    seconds: float | None
    n_bytes: int


@dataclass(frozen=True)
class LensComparison(Result):
    """Lenses compared: one score a layer, the mean over layers, and the cost of each.

    Keys of the scores: kl (KL(p_model ‖ p_lens)), cross_entropy (−log p_lens of the token that is
    really there), precision@1, @5, @10 and surprisal, against the model's own final output.
    """

    layers: Mapping[str, tuple[LayerScore, ...]]
    overall: Mapping[str, LayerScore]
    costs: Mapping[str, LensCost]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Scores by lens and layer, their means over layers, costs, settings, notes, provenance."""
        return {
            "lenses": {
                name: {
                    "layers": {str(s.layer): s.to_dict() for s in self.layers[name]},
                    "mean": self.overall[name].to_dict(),
                    "cost": vars(self.costs[name]),
                }
                for name in self.layers
            },
            "settings": self.settings,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a lens and layer."""
        return [
            {"lens": name, "layer": score.layer} | score.flat()
            for name, each in self.layers.items()
            for score in each
        ]


def compare_lenses(
    model: "Model",
    lenses: "Asked | Iterable[Asked]" = DEFAULT,
    text: AnyText | None = None,
    *,
    layers: Sequence[int] | None = None,
    rows: int | None = None,
    progress: Progress | None = None,
) -> LensComparison:
    """KL, cross-entropy, Precision@k and Surprisal of several lenses on identical positions.

    lenses: "id", "mat", "affine", "refined" (fitted now on three quarters of the text), files or
    Maps. text: scored are the lines it holds out; by default up to 1,000 of a quarter. Lines that
    any of the lenses was fitted on are never scored. layers: 0 … L-1 unless given.
    rows: fit on so many lines at most. Intervals: over texts (see `intervals`).
    Raises TextError, MapsError, ModelError.
    """
    text = Text.of(text, model)
    lines = split(text)
    asked = isinstance(text.held_out, tuple)
    # without given lines `fit` draws the same split, so that remembered maps are found again
    here = replace(text, fit=lines.fit, held_out=lines.score) if asked else text
    layers = None if layers is None else sorted(set(indices(layers, model.n_layers, "layer")))
    found, notes = named_maps(model, lenses, here, layers=layers, rows=rows, progress=progress)
    chosen = _unseen(text, lines.score, found.values())
    taken = passages(model, text, chosen if asked else chosen[:MOST_ROWS])
    work = _Comparing(model, found, layers, text, taken)
    running = start_model(model)
    for states in read_text(running, taken, progress=progress):
        work.add(states)
    changes, changed = batch_changes(running, taken.passages)
    said = (*notes, *lines.notes, *taken.notes(), *work.notes(), *changed)
    return work.result(record_of(model, taken) | changes, said)


def _unseen(text: Text, lines: tuple[int, ...], lenses: Iterable[Maps | None]) -> tuple[int, ...]:
    """Lines that no lens was fitted on, in the order drawn."""
    marks = {mark for maps in lenses if maps for mark in maps.about.get("marks") or ()}
    kept = tuple(i for i in lines if mark_of(text.lines[i]) not in marks)
    if not kept:
        raise TextError("every line to score was fitted by one of the lenses: give other text.")
    return kept


class _Comparing:
    """One pass over the positions to score."""

    def __init__(
        self,
        model: "Model",
        lenses: Mapping[str, Maps | None],
        layers: Sequence[int] | None,
        text: Text,
        taken: Passages,
    ) -> None:
        self.model, self.lenses, self.text, self.taken = model, lenses, text, taken
        self.head = Head(model)
        self.layers = _layers(model, lenses, layers)
        self.targets = _targets(model, text, taken)
        self.lines: list[Tensor] = []
        self.found: dict[tuple[str, int], list[dict[str, Tensor]]] = {
            (name, l): [] for name in lenses for l in self.layers
        }

    def add(self, states: States) -> None:
        """Score one batch, a slice of rows at a time."""
        final = states.layers[self.model.n_layers]
        targets = torch.tensor(
            [
                self.targets.get((line, at), -1)
                for line, at in zip(states.lines.tolist(), states.positions.tolist(), strict=True)
            ]
        )
        step = max(1, SLICE // self.head.n_tokens)
        for start in range(0, len(states), step):
            part = slice(start, start + step)
            own = self.head(final[part])
            log_p = own.log_softmax(-1)
            for l in self.layers:
                for name, maps in self.lenses.items():
                    lens = identity if maps is None else through(maps)
                    z = self.head(lens(states.layers[l][part], l))
                    self.found[name, l].append(_scored(z, own, log_p, targets[part]))
        self.lines.append(states.lines)

    def notes(self) -> tuple[str, ...]:
        """How many positions have no token to be right about."""
        missing = self.taken.n_rows - len(self.targets)
        said = (
            f"{missing} of {self.taken.n_rows} positions end their text: cross-entropy is of the "
            "others."
        )
        return (said,) if missing else ()

    def result(self, record: dict[str, Any], notes: Iterable[str]) -> LensComparison:
        """All scores."""
        seed = record["seed"]
        lines = torch.cat(self.lines)
        layers, overall = {}, {}
        for name in self.lenses:
            each = {l: _joined(self.found[name, l]) for l in self.layers}
            layers[name] = tuple(_score(l, values, lines, seed) for l, values in each.items())
            mean = {m: torch.stack([v[m] for v in each.values()]).mean(0) for m in METRICS}
            overall[name] = _score(-1, mean, lines, seed)
        settings = {"layers": self.layers, **record}
        costs = {name: _cost(maps) for name, maps in self.lenses.items()}
        return LensComparison(layers, overall, costs, settings, tuple(notes), self.model.provenance)


def _layers(
    model: "Model", lenses: Mapping[str, Maps | None], asked: Sequence[int] | None
) -> list[int]:
    """Layers that every lens can decode. Raises MapsError where an asked one is missing."""
    final = model.n_layers
    there = [l for l in range(final) if all(m is None or (l, final) in m for m in lenses.values())]
    if asked is None:
        chosen = there
    else:
        chosen = sorted(set(indices(asked, final, "layer")))
        for l in chosen:
            if l not in there:
                raise MapsError(f"not every lens has a map {l} → {final}: leave layer {l} out.")
    if not chosen:
        raise MapsError("there is no layer that all of these lenses decode.")
    return chosen


def _targets(model: "Model", text: Text, taken: Passages) -> dict[tuple[int, int], int]:
    """(line, position) -> the token really there: the next one, or the one under the mask.

    Positions after which a text has no token of its own are missing.
    """
    settings = taken.settings
    encoder = Encoder(model, max_tokens=settings["max_tokens"], special=settings["special_tokens"])
    found: dict[tuple[int, int], int] = {}
    shift = 1 if model.family.causal else 0
    named = len(model.vocabulary)
    for passage in taken.passages:
        framed = encoder.framed(encoder.encode([text.lines[passage.line]])[0])
        for at in passage.keep:
            place = at + shift
            if place < framed.first + framed.n and framed.ids[place] < named:
                found[passage.line, at] = framed.ids[place]
    return found


def _scored(
    z: Float[Tensor, "n V"],
    own: Float[Tensor, "n V"],
    log_p: Float[Tensor, "n V"],
    targets: Int[Tensor, "n"],
) -> dict[str, Tensor]:
    outcome = outcome_of(z, own, log_p)
    at = targets.to(z.device)
    log_q = z.log_softmax(-1).gather(1, at.clamp_min(0)[:, None])[:, 0].double()
    missed = (-log_q).masked_fill(at < 0, float("nan")).cpu()
    values = {f"precision@{k}": (outcome.rank < k).double() for k in KS}
    return {"kl": outcome.kl, "cross_entropy": missed, **values, "surprisal": outcome.surprisal}


def _joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {metric: torch.cat([part[metric] for part in parts]) for metric in METRICS}


def _score(layer: int, values: dict[str, Tensor], lines: Int[Tensor, "n"], seed: int) -> LayerScore:
    """Means and intervals; positions without a value take no part in theirs."""
    means, intervals = {}, {}
    for metric, each in values.items():
        there = ~each.isnan()
        if bool(there.any()):
            means[metric] = float(each[there].mean())
            draws = Bootstrap(lines[there], seed=seed)
            own = draws.share if metric in SHARES and layer >= 0 else draws.mean
            intervals[metric] = own(each[there])
    return LayerScore(layer, means, intervals)


def _cost(maps: Maps | None) -> LensCost:
    if maps is None:
        return LensCost(0, 0.0, 0)
    n_bytes = sum(4 * tensor.numel() for tensor in maps.tensors.values())
    return LensCost(maps.about.get("rows"), maps.about.get("seconds"), n_bytes)
