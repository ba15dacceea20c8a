"""Refined maps: mat as the start, then a few epochs towards the model's own final distribution.

Least squares makes x A close to state L in the Euclidean sense; what is read off a lens is the
distribution behind the head. The objective is the tuned lens's (Belrose et al. 2023,
arXiv 2303.08112), KL(p_model ‖ p_lens), the start is [DIN] §3's least-squares map, and the rows are
the very rows that map was fitted on, those of a tenth of their texts kept apart to stop in time.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import indices, positive
from ..checking import seed as checked_seed
from ..errors import EmbspaceError, MapsError, ModelError, ResourceError, TextError
from ..live.capture import States, capture_all
from ..live.running import start_model
from ..memory import free_memory, gigabytes
from ..progress import Progress
from ..text.passages import passages
from ..text.text import AnyText, Text, mark_of
from .assemble import MOST_MARKS
from .decoding import Head, why_no_head
from .lens_rows import SLICE
from .maps import Maps

if TYPE_CHECKING:
    from ..weights.model import Model

EPOCHS, BATCH, RATE = 5, 64, 1e-3
AS_FITTED = ("positions", "max_tokens", "skip_first", "seed")
KEPT_APART = 0.1  # of the texts: their rows only tell when to stop


def refine(
    model: "Model",
    maps: Maps,
    text: AnyText | None = None,
    *,
    layers: Sequence[int] | None = None,
    epochs: int = EPOCHS,
    rate: float = RATE,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> Maps:
    """Maps to the last state that lower KL(p_model ‖ softmax(head(x A + b))), started from `maps`.

    A = A₀ + diag(1/s) D diag(t), b = t c: s, t are the root mean squares of the coordinates of x
    and of state L, so that one rate suits all; D and c start at 0 and AdamW changes them.
    text: what `maps` were fitted on (their record says which lines); layers: which to refine (all
    that `maps` take to L); epochs: at most; each layer keeps its best epoch by KL on rows kept
    apart, the start among them. The head meets a slice of rows at a time.
    Result: kind "refined", `about["kl"]` = {layer: [KL of the start, KL kept]} in nats on the rows
    kept apart, which the start was fitted on: it is no held-out figure.
    Raises MapsError, TextError, ResourceError, ModelError.
    """
    maps.require(model)
    text = Text.of(text, model)
    wanted = _wanted(maps, layers)
    states = _states(model, maps, text, wanted, progress)
    work = _Refining(model, maps, states, wanted, positive(batch, "batch"), rate, text.seed)
    work.run(positive(epochs, "epochs"), progress)
    return work.result()


def require_refinable(model: "Model", n_lines: int) -> None:
    """Refuse before a fit over so many lines what could not be refined after it.

    Raises ModelError for a model without a prediction head, TextError for more lines than maps
    remember.
    """
    reason = why_no_head(model)
    if reason:
        raise ModelError(reason)
    if n_lines > MOST_MARKS:
        raise TextError(
            f"maps of {n_lines} lines do not remember which these were, so they cannot be refined: "
            f"fit {MOST_MARKS} at most (rows={MOST_MARKS})."
        )


def _wanted(maps: Maps, layers: Iterable[int] | None) -> list[int]:
    """Layers to refine. Raises MapsError where a map to the last state is missing."""
    final = maps.n_layers
    there = [l for l in range(final) if (l, final) in maps]
    if layers is None:
        if not there:
            raise MapsError("these maps take no layer to the last state, so none can be refined.")
        return there
    chosen = sorted(set(indices(layers, final, "layer", error=MapsError)))
    for l in chosen:
        if l not in there:
            raise MapsError(f"no map {l} → {final} was fitted, so it cannot be refined.")
    return chosen


def _states(
    model: "Model", maps: Maps, text: Text, layers: list[int], progress: Progress | None
) -> States:
    """The rows that the maps were fitted on, taken again at the same positions."""
    about = maps.about
    marks = set(about.get("marks") or ())
    lines = [i for i, line in enumerate(text.lines) if mark_of(line) in marks]
    if not lines or about.get("text_hash") != text.digest:
        raise TextError(
            f"the maps were fitted on {about.get('text')} (hash "
            f"{about.get('text_hash')}), not on {text.source} (hash {text.digest}): "
            "refine on the same text."
        )
    if about.get("positions") == "given":
        raise TextError("the maps were fitted at given positions, which their record lacks.")
    as_fitted = {name: about[name] for name in AS_FITTED if name in about}
    special = about.get("special_tokens", True)
    taken = passages(model, replace(text, special=special, **as_fitted), lines)
    needed = 4 * taken.n_rows * model.d * (len(layers) + 1) * 2 + 16 * len(layers) * model.d**2
    free = free_memory(model.device)
    if needed > free:
        raise ResourceError(
            f"refining {len(layers)} layers needs about {gigabytes(needed)} of memory and "
            f"{gigabytes(free)} are free: refine some layers at a time."
        )
    if progress:
        progress("states to refine on", 0, 1)
    return capture_all(start_model(model), taken.passages, layers=[*layers, model.n_layers])


@dataclass
class _Map:
    """One layer's map while it changes: x A₀ + b₀ + (x / s) D t + c t."""

    A: Float[Tensor, "d d"]
    b: Float[Tensor, "d"]
    s: Float[Tensor, "d"]
    t: Float[Tensor, "d"]
    D: Float[Tensor, "d d"]
    c: Float[Tensor, "d"]
    optimiser: Any
    kl: list[float]
    best: tuple[Tensor, Tensor]
    done: bool = False

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return x @ self.A + self.b + ((x / self.s) @ self.D + self.c) * self.t

    def judge(self, kl: float) -> None:
        """Keep what is best so far; an epoch that made it worse is the last one."""
        if not self.kl or kl < min(self.kl):
            self.best = (self.D.detach().clone(), self.c.detach().clone())
        else:
            self.done = True
        self.kl.append(kl)

    def solution(self) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d"]]:
        """A and b of the best epoch."""
        D, c = self.best
        return self.A + D * self.t / self.s[:, None], self.b + c * self.t


class _Refining:
    """The layers of one model, refined side by side: the target of a batch serves all of them."""

    def __init__(
        self,
        model: "Model",
        maps: Maps,
        states: States,
        layers: list[int],
        batch: int,
        rate: float,
        seed: int,
    ) -> None:
        if not 0 < rate < 1:
            raise EmbspaceError(f"rate must lie between 0 and 1, got {rate}.")
        self.model, self.old, self.states, self.batch = model, maps, states, batch
        self.rate, self.seed = rate, checked_seed(seed)
        self.head, self.final = Head(model), states.layers[model.n_layers]
        self.step = max(1, SLICE // self.head.n_tokens)
        self.apart, self.rows = _apart(states.lines, self.seed)
        self.maps: Mapping[int, _Map] = {l: self._map(l) for l in layers}
        self.epochs = 0

    def _map(self, l: int) -> _Map:
        x, y = self.states.layers[l], self.final
        n = self.model.n_layers
        A = self.old[l, n].to(x.device, x.dtype)
        b = self.old.tensors.get(f"b.{l}-{n}", torch.zeros(self.model.d)).to(x.device, x.dtype)
        s, t = (v.square().mean(0).sqrt().clamp_min(1e-6) for v in (x[self.rows], y[self.rows]))
        # a common size of all inputs is left in s, so that D moves x A by about its rate per step
        s = s * self.model.d**0.5
        D, c = torch.zeros_like(A, requires_grad=True), torch.zeros_like(b, requires_grad=True)
        optimiser = torch.optim.AdamW([D, c], lr=self.rate * 10, weight_decay=0.0)
        return _Map(A, b, s, t, D, c, optimiser, [], (D.detach().clone(), c.detach().clone()))

    def run(self, epochs: int, progress: Progress | None) -> None:
        """Epochs until every layer is done; judged before the first and after each."""
        self._judge()
        for epoch in range(epochs):
            if all(m.done for m in self.maps.values()):
                break
            generator = torch.Generator().manual_seed(self.seed + epoch)
            order = self.rows[torch.randperm(len(self.rows), generator=generator)]
            for at in range(0, len(order), self.batch):
                share = (epoch + at / len(order)) / epochs
                self._step(order[at : at + self.batch], 1 - share)
                if progress:
                    done = epoch * len(order) + min(at + self.batch, len(order))
                    progress("rows refined", done, epochs * len(order))
            self.epochs = epoch + 1
            self._judge()

    def _step(self, rows: Int[Tensor, "batch"], left: float) -> None:
        """One step of every layer; left: share of the run that is left, which scales the rate."""
        moving = {l: m for l, m in self.maps.items() if not m.done}
        for m in moving.values():
            m.optimiser.zero_grad()
        for part in rows.split(self.step):
            _, p = self._target(part)
            for l, m in moving.items():
                z = self.head(m(self.states.layers[l][part]))
                # d KL / d z = q − p: the softmax's own graph is not kept
                z.backward((z.detach().softmax(-1) - p) / len(rows))
        for m in moving.values():
            for group in m.optimiser.param_groups:
                group["lr"] = self.rate * 10 * left
            m.optimiser.step()

    def _judge(self) -> None:
        """Mean KL of every layer on the rows kept apart."""
        total = dict.fromkeys(self.maps, 0.0)
        with torch.no_grad():
            for part in self.apart.split(self.step):
                log_p, p = self._target(part)
                for l, m in self.maps.items():
                    if not m.done:
                        log_q = self.head(m(self.states.layers[l][part])).log_softmax(-1)
                        total[l] += float((p * (log_p - log_q)).sum())
        for l, m in self.maps.items():
            if not m.done:
                m.judge(total[l] / len(self.apart))

    def _target(self, part: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            log_p = self.head(self.final[part]).log_softmax(-1)
        return log_p, log_p.exp()

    def result(self) -> Maps:
        """The best of each layer, with what changed in the record."""
        n = self.model.n_layers
        tensors: dict[str, Tensor] = {}
        for l, m in self.maps.items():
            A, b = m.solution()
            tensors[f"A.{l}-{n}"], tensors[f"b.{l}-{n}"] = (
                A.detach().cpu().contiguous(),
                b.detach().cpu(),
            )
        pairs = tuple(
            replace(pair, r2=None, r2_median=None, r2_pooled=None)  # of another map
            for pair in self.old.pairs
            if f"A.{pair.source}-{pair.target}" in tensors
        )
        about = dict(self.old.about) | {
            "kind": "refined",
            "refined_from": self.old.kind,
            "refined": {
                "epochs": self.epochs,
                "rate": self.rate,
                "batch": self.batch,
                "seed": self.seed,
                "rows": len(self.rows),
                "rows_apart": len(self.apart),
            },
            "kl": {str(l): [m.kl[0], min(m.kl)] for l, m in self.maps.items()},
        }
        return Maps(about, pairs, tensors)


def _apart(lines: Int[Tensor, "n"], seed: int) -> tuple[Int[Tensor, "m"], Int[Tensor, "k"]]:
    """Rows of a tenth of the texts, and the others. Raises TextError for fewer than two texts."""
    texts = lines.unique().tolist()
    random.Random(seed).shuffle(texts)
    if len(texts) < 2:
        raise TextError("one text is too little to refine maps on and to tell when to stop.")
    few = torch.tensor(texts[: max(1, round(KEPT_APART * len(texts)))])
    held = torch.isin(lines, few)
    return held.nonzero()[:, 0], (~held).nonzero()[:, 0]
