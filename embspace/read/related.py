"""Key-value pairs of a feed-forward layer that speak of the same tokens. [DAR] §4.1."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import positive
from ..checking import seed as checked_seed
from ..results import ListResult, Record
from ..weights.vocabulary import VocabularySpace
from .vectors import FeedForwardReading, VectorGroup


@dataclass(frozen=True)
class RelatedPair(Record):
    """One neuron whose key and value share tokens: which key set, overlap, the shared tokens."""

    neuron: int
    key: str
    overlap: float
    shared: tuple[str, ...]


@dataclass(frozen=True)
class RelatedPairs(ListResult):
    """Related key-value pairs of one layer, most alike first, and their share of all pairs.

    `share` and `share_shuffled` are per key set; shuffled pairs (each key with another neuron's
    value, by `seed`) are the baseline.
    """

    ITEMS = "pairs"
    layer: int
    expert: int | str | None
    pairs: tuple[RelatedPair, ...]
    share: dict[str, float]
    share_shuffled: dict[str, float]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row a related pair."""
        return [
            {"layer": self.layer} | pair.to_dict() | {"shared": " ".join(pair.shared)}
            for pair in self
        ]


def related_pairs(
    reading: FeedForwardReading,
    *,
    k: int = 100,
    overlap: float = 0.15,
    absolute: bool = False,
    seed: int = 0,
) -> RelatedPairs:
    """Find the neurons whose key and value have a Sim_k of at least `overlap`. [DAR] §4.1.

    Sim_k(x, y) is the Jaccard index of the k tokens with the largest scores x E and y E. In gated
    layers, gate and up count apart.

    Args:
        reading: the feed-forward layer.
        k: how many tokens stand for a vector.
        overlap: the least Sim_k; .15 of 100 tokens means 27 shared ones.
        absolute: take the largest |x E| and |y E|, which also relates opposite ends. The papers'
            code takes the signed scores, which is the default.
        seed: of the shuffle beside which the share stands.

    Returns:
        The related pairs, and their share among all neurons beside that of shuffled pairs.

    Raises:
        EmbspaceError: k or the seed is not a number that will do.
    """
    k, seed = positive(k), checked_seed(seed)
    space = reading.model.vocabulary
    values = _top_ids(space, reading.values, k, absolute)
    shuffle = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    pairs, share, shuffled = [], {}, {}
    for name, group in reading.groups().items():
        if name == "value":
            continue
        keys = _top_ids(space, group, k, absolute)
        similar = jaccard(keys, values)
        share[name] = float((similar >= overlap).double().mean())
        shuffled[name] = float((jaccard(keys, values[shuffle]) >= overlap).double().mean())
        for n in (similar >= overlap).nonzero()[:, 0].tolist():
            shared = [i for i in keys[n].tolist() if i in set(values[n].tolist())]
            labels = tuple(space.labels[i] for i in shared)
            pairs.append(RelatedPair(n, name, float(similar[n]), labels))
    pairs.sort(key=lambda pair: (-pair.overlap, pair.neuron, pair.key))
    settings = {
        "k": k,
        "overlap": overlap,
        "absolute": absolute,
        "seed": seed,
        "norm": reading.norm,
    }
    return RelatedPairs(
        reading.layer,
        reading.expert,
        tuple(pairs),
        share,
        shuffled,
        settings,
        reading.model.provenance,
    )


def jaccard(a: Int[Tensor, "n k"], b: Int[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """Jaccard index |A ∩ B| / |A ∪ B| of the id sets in matching rows; rows hold no id twice."""
    common = torch.cat(
        [
            (x[:, :, None] == y[:, None, :]).sum((1, 2))
            for x, y in zip(a.split(256), b.split(256), strict=True)
        ]
    ).double()
    return common / (a.shape[1] + b.shape[1] - common)


def _top_ids(space: VocabularySpace, group: VectorGroup, k: int, absolute: bool) -> Tensor:
    return space.top_ids(group.vectors, k, absolute=absolute)[0]
