"""Neurons of a feed-forward layer as a whole: keys and value side by side, the sharpest first."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..checking import indices, positive
from ..results import Result
from ..weights.filters import filter_names
from .seen_rows import asked_mask
from .vectors import FeedForwardReading, VectorTokens, vector_settings


@dataclass(frozen=True)
class NeuronTokens(Result):
    """One neuron: both ends of its keys ("key", or "gate" and "up") and of its "value"."""

    layer: int
    expert: int | str | None
    neuron: int
    vectors: dict[str, VectorTokens]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """|strongest score| of the value over the rms of all its scores."""
        return self.vectors["value"].peak

    def to_dict(self) -> dict[str, Any]:
        """Where the neuron is, its peak, and each vector's length, rms and two lists."""
        shared = ("settings", "provenance")
        vectors = {name: vector.to_dict() for name, vector in self.vectors.items()}
        return {
            "layer": self.layer,
            "expert": self.expert,
            "neuron": self.neuron,
            "peak": self.peak,
            "vectors": {
                name: {key: value for key, value in vector.items() if key not in shared}
                for name, vector in vectors.items()
            },
            "settings": self.settings,
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a token of either end of each vector."""
        where = {"layer": self.layer, "expert": self.expert, "neuron": self.neuron}
        return [
            where
            | {"part": name}
            | {key: row[key] for key in ("end", "id", "token", "text", "score")}
            for name, vector in self.vectors.items()
            for row in vector.rows()
        ]


def read_neurons(
    reading: FeedForwardReading,
    only: Iterable[int],
    k: int = 30,
    *,
    filters: str | Iterable[str] = (),
) -> list[NeuronTokens]:
    """Keys and values of some neurons, exactly. Raises EmbspaceError for one not there."""
    k, filters = positive(k), filter_names(filters)
    which = indices(only, len(reading.values), "neuron")
    groups = {
        name: group.top_tokens(k, only=which, filters=filters)
        for name, group in reading.groups().items()
    }
    settings = vector_settings(reading.reading) | {"filters": list(filters)}
    provenance = reading.model.provenance
    return [
        NeuronTokens(
            reading.layer,
            reading.expert,
            n,
            {name: tokens[at] for name, tokens in groups.items()},
            settings,
            provenance,
        )
        for at, n in enumerate(which)
    ]


def sharpest(
    reading: FeedForwardReading, limit: int, *, filters: str | Iterable[str] = ()
) -> list[int]:
    """The neurons whose value singles out a token most: largest max |x E| / rms, ties by number."""
    limit = positive(limit, "limit")
    group, mask = reading.values, asked_mask(reading.model, reading.reading, filter_names(filters))
    _, scores = group.space.top_ids(group.vectors, 1, absolute=True, allowed=mask)
    rms = torch.tensor(group.rms(group.vectors), dtype=torch.float64)
    order = (scores[:, 0] / rms.clamp_min(1e-30)).argsort(descending=True, stable=True)
    return order[:limit].tolist()
