"""Matching parameter vectors against shuffled ones: Sim_k by layer. [DAR] §4.1, App. B, Fig. 6."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import indices, one_of, positive
from ..checking import seed as checked_seed
from ..errors import ModelError
from ..estimate import Estimate, estimate
from ..notation import NORMS, Norm
from ..read.related import jaccard
from ..read.vectors import FeedForwardReading, sub_heads
from ..results import Result

if TYPE_CHECKING:
    from ..weights.model import Model

RELATED = 0.15  # Sim_100 from which the paper calls a key and its value related
ATTENTION_KINDS = ("W_V–W_O", "W_Q–W_K")


@dataclass(frozen=True)
class LayerSimilarity:
    """Sim_k of one kind of pairs in one layer: matching, shuffled, and how many are related.

    matching, shuffled: of the tokens with the largest |x E|; share, share_shuffled: of pairs whose
    Sim_k over the largest signed scores x E reaches `RELATED`, as `related_pairs` counts them.
    """

    layer: int
    kind: str  # "key–value" ("gate–value", "up–value" where gated), "W_V–W_O", "W_Q–W_K"
    n_pairs: int  # of the layer; `matching.n` of them were measured
    matching: Estimate
    shuffled: Estimate
    share: float
    share_shuffled: float

    def to_dict(self) -> dict[str, Any]:
        """The fields, estimates with their ends."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "n_pairs": self.n_pairs,
            "matching": self.matching.to_dict(),
            "shuffled": self.shuffled.to_dict(),
            "share": self.share,
            "share_shuffled": self.share_shuffled,
        }


@dataclass(frozen=True)
class PairSimilarity(Result):
    """Sim_k of matching and of shuffled pairs, by kind and layer."""

    layers: tuple[LayerSimilarity, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def kinds(self) -> dict[str, tuple[LayerSimilarity, ...]]:
        """The layers of each kind, in order."""
        names = dict.fromkeys(row.kind for row in self.layers)
        return {name: tuple(r for r in self.layers if r.kind == name) for name in names}

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer and kind."""
        return [
            {"layer": r.layer, "kind": r.kind, "n": r.matching.n, "n_pairs": r.n_pairs}
            | r.matching.cells("matching")
            | r.shuffled.cells("shuffled")
            | {"share": r.share, "share_shuffled": r.share_shuffled}
            for r in self.layers
        ]


@dataclass(frozen=True)
class Pairs:
    """Matching vectors of one kind in one layer: row n of `left` belongs to row n of `right`.

    `same` numbers the vectors of `left` that are one and the same (query heads that share a
    value head), so that no shuffle pairs such a row with its own partner.
    """

    kind: str
    left: Float[Tensor, "n d"]
    right: Float[Tensor, "n d"]
    same: Int[Tensor, "n"]
    n_pairs: int


def pair_similarity(
    model: "Model",
    *,
    k: int = 100,
    sample: int | None = 1000,
    layers: Iterable[int] | None = None,
    norm: Norm = "raw",
    seed: int = 0,
) -> PairSimilarity:
    """Sim_k of matching pairs beside that of shuffled ones, with 95 % intervals.

    Sim_k(x, y): Jaccard index of the top-k tokens of |x E| and |y E|. The share of related pairs
    goes by the signed scores x E and y E, as in `related_pairs`. Pairs: a neuron's key (gate
    and up apart) and value; column j of W_V of key/value head g and row j of W_O of each query
    head that reads g; column j of W_Q and of the W_K its head reads. Of each kind, `sample` pairs
    a layer, drawn by `seed`; None takes all. Shuffled: the same vectors, none with its partner.
    Raises EmbspaceError for settings that do not apply.
    """
    found = tuple(
        row
        for of_layer in pair_similarities(
            model, k=k, sample=sample, layers=layers, norm=norm, seed=seed
        )
        for row in of_layer
    )
    return gathered(model, found, k=k, sample=sample, norm=norm, seed=seed)


def pair_similarities(
    model: "Model",
    *,
    k: int = 100,
    sample: int | None = 1000,
    layers: Iterable[int] | None = None,
    norm: Norm = "raw",
    seed: int = 0,
) -> Iterator[tuple[LayerSimilarity, ...]]:
    """The same layer by layer, as they are found."""
    k, seed = positive(k), checked_seed(seed)
    sample = None if sample is None else positive(sample, "sample")
    one_of(norm, NORMS, "norm")
    chosen = range(model.n_layers) if layers is None else indices(layers, model.n_layers, "layer")

    def found() -> Iterator[tuple[LayerSimilarity, ...]]:
        for layer in chosen:
            random = torch.Generator().manual_seed(seed + layer)
            kinds = pairs_of(model, layer, norm, sample, random)
            sizes, signed = (_Tops(model, k, absolute=absolute) for absolute in (True, False))
            yield tuple(_compared(layer, pairs, sizes, signed, random) for pairs in kinds)

    return found()


def gathered(model: "Model", found: tuple[LayerSimilarity, ...], **settings: Any) -> PairSimilarity:
    """Layers as one result, ordered by kind."""
    kinds = list(dict.fromkeys(row.kind for row in found))
    ordered = sorted(found, key=lambda row: (kinds.index(row.kind), row.layer))
    notes = tuple(note for note in model.notes if "W_QK" not in note)
    if model.family.positions == "rotary":
        notes += (
            "Rotary positions turn queries and keys in pairs of columns: W_Q–W_K compares "
            "columns at relative distance 0.",
        )
    settings = settings | {"absolute": True, "related": RELATED, "related_absolute": False}
    return PairSimilarity(tuple(ordered), settings, model.provenance, notes)


def pairs_of(
    model: "Model", layer: int, norm: Norm, sample: int | None, random: torch.Generator
) -> Iterator[Pairs]:
    """The kinds of pairs of one layer, `sample` of each."""
    yield from _neurons(model, layer, norm, sample, random)
    for kind, groups in zip(ATTENTION_KINDS, (("v", "o"), ("q", "k")), strict=True):
        yield _columns(model, layer, kind, groups, norm, sample, random)


def _neurons(
    model: "Model", layer: int, norm: Norm, sample: int | None, random: torch.Generator
) -> Iterator[Pairs]:
    """Keys and values; those of a mixture from all its experts alike."""
    experts = model.experts(layer)
    each = None if sample is None else -(-sample // len(experts))
    keys: dict[str, list[Tensor]] = {}
    values: list[Tensor] = []
    n_pairs = 0
    for expert in experts:
        groups = FeedForwardReading(model, layer, expert, norm).groups()
        rows = groups.pop("value").vectors
        n_pairs += len(rows)
        chosen = _drawn(len(rows), each, random)
        values.append(rows[chosen])
        for name, group in groups.items():
            keys.setdefault(name, []).append(group.vectors[chosen])
    right = torch.cat(values)  # the same for gate and up: its tokens are sought once
    for name, found in keys.items():
        yield Pairs(f"{name}–value", torch.cat(found), right, torch.arange(len(right)), n_pairs)


def _columns(
    model: "Model",
    layer: int,
    kind: str,
    groups: tuple[Any, Any],
    norm: Norm,
    sample: int | None,
    random: torch.Generator,
) -> Pairs:
    """Column j with row or column j of every query head and the key/value head it reads."""
    sides = [
        torch.cat([sub_heads(model, layer, h, g, norm).vectors for h in range(model.n_heads)])
        for g in groups
    ]
    attention = model.attention(layer)
    kv = torch.tensor([attention.kv_head(h) for h in range(model.n_heads)])
    shared = (kv[:, None] * model.d_head + torch.arange(model.d_head)).flatten()
    chosen = _drawn(len(shared), sample, random)
    return Pairs(kind, sides[0][chosen], sides[1][chosen], shared[chosen], len(shared))


def _drawn(n: int, sample: int | None, random: torch.Generator) -> Tensor:
    order = torch.randperm(n, generator=random)
    return order if sample is None else order[:sample]


class _Tops:
    """Top tokens of vectors; those of the last right side are remembered."""

    def __init__(self, model: "Model", k: int, *, absolute: bool) -> None:
        self.space, self.k, self.absolute = model.vocabulary, k, absolute
        self._last: tuple[Tensor, Tensor] | None = None

    def of(self, vectors: Float[Tensor, "n d"]) -> Int[Tensor, "n k"]:
        """The k tokens with the largest x E, or |x E|."""
        return self.space.top_ids(vectors, self.k, absolute=self.absolute)[0]

    def right(self, pairs: Pairs) -> Int[Tensor, "n k"]:
        """Those of a right side, which several kinds may share."""
        if self._last is None or self._last[0] is not pairs.right:
            self._last = (pairs.right, self.of(pairs.right))
        return self._last[1]

    def similar(self, pairs: Pairs, order: Tensor) -> tuple[Tensor, Tensor]:
        """Sim_k of the pairs, and of the same with their right sides in another order."""
        left, right = self.of(pairs.left), self.right(pairs)
        return jaccard(left, right), jaccard(left, right[order])


def _compared(
    layer: int, pairs: Pairs, sizes: _Tops, signed: _Tops, random: torch.Generator
) -> LayerSimilarity:
    order = unmatched(pairs.same, random)
    matching, shuffled = sizes.similar(pairs, order)
    related, by_chance = signed.similar(pairs, order)
    return LayerSimilarity(
        layer,
        pairs.kind,
        pairs.n_pairs,
        estimate(matching),
        estimate(shuffled),
        float((related >= RELATED).double().mean()),
        float((by_chance >= RELATED).double().mean()),
    )


def unmatched(same: Int[Tensor, "n"], random: torch.Generator) -> Int[Tensor, "n"]:
    """A random order in which no place holds an item of its own kind (`same` numbers the kinds).

    Raises ModelError where no such order exists: a kind holds more than half of the items.
    """
    n = len(same)
    if n < 2 or 2 * int(same.unique(return_counts=True)[1].max()) > n:
        raise ModelError(f"{n} pairs are too few to shuffle: nothing to compare them with.")
    order = torch.randperm(n, generator=random)
    while True:
        wrong = (same[order] == same).nonzero()[:, 0].tolist()
        if not wrong:
            return order
        for at in wrong:
            other = int(torch.randint(n, (1,), generator=random))
            order[[at, other]] = order[[other, at]]
