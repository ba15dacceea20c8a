"""Do activated parameter vectors name the tokens of the hidden state? R_k. [DAR] §4.2, App. B.2."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import one_of, positive
from ..estimate import Estimate, estimate_by_text
from ..live.rebuilt import prepared
from ..live.running import run
from ..live.taking import Used, take
from ..live.tape import FEW
from ..read.vectors import FeedForwardReading, sub_heads
from ..results import Result
from ..text.passages import passages
from ..text.text import AnyText, Text
from .matching_pairs import unmatched

if TYPE_CHECKING:
    from ..weights.model import Model
    from ..weights.vocabulary import VocabularySpace

Against = Literal["state", "final"]
AGAINST = ("state", "final")
CHUNK = 256  # positions whose token sets are compared at a time


@dataclass(frozen=True)
class LayerOverlap:
    """R_k of one kind of parameters in one layer: at their own positions, and at others."""

    layer: int
    part: str  # "key" ("gate", "up" where gated), "value", "W_V", "W_O"
    aligned: Estimate
    permuted: Estimate

    def to_dict(self) -> dict[str, Any]:
        """The fields, estimates with their ends."""
        return {
            "layer": self.layer,
            "part": self.part,
            "aligned": self.aligned.to_dict(),
            "permuted": self.permuted.to_dict(),
        }


@dataclass(frozen=True)
class StateOverlap(Result):
    """R_k by part and layer, against the layer's own state or against the final one."""

    against: Against
    layers: tuple[LayerOverlap, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def parts(self) -> dict[str, tuple[LayerOverlap, ...]]:
        """The layers of each part, in order."""
        names = dict.fromkeys(row.part for row in self.layers)
        return {name: tuple(r for r in self.layers if r.part == name) for name in names}

    def rows(self) -> list[dict[str, Any]]:
        """One row a part and layer."""
        return [
            {"against": self.against, "layer": r.layer, "part": r.part, "n": r.aligned.n}
            | r.aligned.cells("aligned")
            | r.permuted.cells("permuted")
            for r in self.layers
        ]


def state_overlap(
    model: "Model",
    text: AnyText | None = None,
    *,
    against: Against = "state",
    k: int = 50,
    m: int = 5,
    per_text: int = 4,
) -> StateOverlap:
    """R_k of activated parameter vectors, aligned and with positions permuted, by layer.

    R_k at a position: of the k top tokens of the hidden state (through the final norm, and a masked
    model's transform), the share that is among the k top tokens of any of the m vectors with the
    largest activations. Activations: what multiplies the feed-forward values, after the
    nonlinearity (gated: times the up side) and with its sign, for keys (gate and up apart) and
    values; the inputs of the output matrix, value vectors mixed by attention, for columns of
    W_V and rows of W_O. `against`: "state" after the same block [§4.2] or the "final" one [B.2].
    `text`: see `Text` (default: a few sentences of the model's own kind); `per_text`
    random positions of each; intervals take texts as drawn, not positions.
    Raises EmbspaceError for settings or texts that do not apply.
    """
    return Overlaps(model, text, against=against, k=k, m=m, per_text=per_text).result()


def logits(
    model: "Model", text: AnyText | None = None, *, k: int = 50, m: int = 5, per_text: int = 4
) -> StateOverlap:
    """`states` against the final state instead of the same layer's. [DAR] App. B.2."""
    return state_overlap(model, text, against="final", k=k, m=m, per_text=per_text)


class Overlaps:
    """`state_overlap` layer by layer, as they are found: iterate, then ask for the `result`."""

    def __init__(
        self,
        model: "Model",
        text: AnyText | None = None,
        *,
        against: Against = "state",
        k: int = 50,
        m: int = 5,
        per_text: int = 4,
    ) -> None:
        one_of(against, AGAINST, "comparison")
        self.model, self.text = model, Text.of(text, model, FEW)
        self.against: Against = against
        self.k, self.m = positive(k), positive(m, "m")
        several = positive(per_text, "positions a text")
        self.passages = passages(model, replace(self.text, positions=several))
        self.per_text = per_text
        self.found: list[LayerOverlap] = []
        self._iterator = self._layers()

    def __iter__(self) -> Iterator[list[LayerOverlap]]:
        return self._iterator

    def result(self) -> StateOverlap:
        """All layers, those not found yet included, ordered by part."""
        for _ in self._iterator:
            pass
        parts = list(dict.fromkeys(row.part for row in self.found))
        order = sorted(self.found, key=lambda row: (parts.index(row.part), row.layer))
        settings = {
            "k": self.k,
            "m": self.m,
            "per_text": self.per_text,
            "n_texts": len(self.text),
            "n_positions": self.passages.n_rows,
            **self.passages.settings,
            "norm": "raw",
        }
        return StateOverlap(
            self.against, tuple(order), settings, self.model.provenance, self._notes()
        )

    def _notes(self) -> tuple[str, ...]:
        found = [*self.passages.notes(), *(n for n in self.model.notes if "W_QK" not in n)]
        if self.model.family.transform and self.model.has_head:
            found.append("States are read through the head's dense transform, vectors are not.")
        mixtures = [x for x in range(self.model.n_layers) if self.model.experts(x) != [None]]
        if mixtures:
            found.append(
                f"Feed-forward parts of {len(mixtures)} mixture layers are left out: the "
                "activations of their experts are not recorded."
            )
        return tuple(found)

    def _layers(self) -> Iterator[list[LayerOverlap]]:
        taken = take(run(self.model), self.passages, self.m)
        space, n = self.model.vocabulary, len(taken.lines)
        order = unmatched(torch.arange(n), torch.Generator().manual_seed(self.text.seed))
        final = self._tops(space, taken.states[-1])
        for layer, used in enumerate(taken.used):
            own = self._tops(space, taken.states[layer]) if self.against == "state" else final
            new = []
            for part, vectors, which in _groups(self.model, layer, used):
                tokens = _tokens(space, vectors, which, self.k)
                aligned = shares(own, tokens)
                permuted = shares(own, tokens[order])
                estimates = (estimate_by_text(x, taken.lines) for x in (aligned, permuted))
                new.append(LayerOverlap(layer, part, *estimates))
            self.found += new
            yield new

    def _tops(self, space: "VocabularySpace", state: Tensor) -> Tensor:
        return space.top_ids(prepared(self.model, state), self.k)[0]


def _groups(
    model: "Model", layer: int, used: Used
) -> Iterator[tuple[str, Float[Tensor, "many d"], Int[Tensor, "n m"]]]:
    """Each part's vectors, and which of them each position used."""
    if used.neurons is not None:
        for name, group in FeedForwardReading(model, layer).groups().items():
            yield name, group.vectors, used.neurons
    for part, name in (("v", "W_V"), ("o", "W_O")):
        heads = range(model.n_heads)
        vectors = torch.cat([sub_heads(model, layer, h, part).vectors for h in heads])  # type: ignore[arg-type]
        yield name, vectors, used.columns


def _tokens(
    space: "VocabularySpace", vectors: Tensor, which: Int[Tensor, "n m"], k: int
) -> Int[Tensor, "n mk"]:
    """Top k tokens of the m vectors that each position used, one after the other."""
    distinct, back = which.unique(return_inverse=True)
    tops = space.top_ids(vectors[distinct.to(vectors.device)], k)[0]
    return tops[back].flatten(1)


def shares(state: Int[Tensor, "n k"], vectors: Int[Tensor, "n mk"]) -> Float[Tensor, "n"]:
    """Of each state's top tokens, the share that is among those of its vectors."""
    parts = zip(state.split(CHUNK), vectors.split(CHUNK), strict=True)
    return torch.cat([(a[:, :, None] == b[:, None]).any(2).double().mean(1) for a, b in parts])
