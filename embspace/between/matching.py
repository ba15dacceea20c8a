"""One-to-one matches of layers, and how close to the diagonal they lie. [DAR] §5.1."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

EXACT = 50_000  # matches that are all tried, rather than drawn
DRAWN = 20_000


@dataclass(frozen=True)
class LayerMatch:
    """The one-to-one match of layers that makes the sum of their scores largest.

    score: L_a × L_b, mean |ρ|, None where a layer has none; match: the layer of B for every layer
    of A, or None; diagonal: share of matched layers that lie on the diagonal, 0 to 1; distance:
    mean |l − l'| from it, in layers of the deeper model; p: share of one-to-one matches drawn
    evenly whose distance is as small; unmatched_a, unmatched_b: layers without a score, and why.
    """

    match: tuple[int | None, ...]
    score: tuple[tuple[float | None, ...], ...]
    diagonal: float | None
    distance: float | None
    p: float | None
    unmatched_a: dict[int, str] = field(default_factory=dict)
    unmatched_b: dict[int, str] = field(default_factory=dict)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Matched layers (of A, of B)."""
        return [(i, j) for i, j in enumerate(self.match) if j is not None]

    @property
    def n_diagonal(self) -> int:
        """How many of the matched layers lie on the diagonal."""
        return round((self.diagonal or 0.0) * len(self.pairs))

    def to_dict(self) -> dict[str, Any]:
        """Match, score, diagonal, distance, p, and the layers left out."""
        return {
            "match": list(self.match),
            "score": [list(row) for row in self.score],
            "diagonal": self.diagonal,
            "distance": self.distance,
            "p": self.p,
            "unmatched_a": {str(layer): why for layer, why in self.unmatched_a.items()},
            "unmatched_b": {str(layer): why for layer, why in self.unmatched_b.items()},
        }


def match_layers(
    score: Float[Tensor, "L_a L_b"],
    *,
    seed: int = 0,
    unmatched: tuple[dict[int, str], dict[int, str]] = ({}, {}),
) -> LayerMatch:
    """Hungarian match of the layers that have scores; rows and columns of NaN stay unmatched.

    The p-value is that of the mean distance from the diagonal, when the match is replaced by one
    drawn evenly from all one-to-one matches of the same layers (all of them where there are at
    most 50,000, else 20,000 drawn by `seed`).
    """
    from scipy.optimize import linear_sum_assignment

    table = score.detach().cpu().double().numpy()
    rows, columns = (np.flatnonzero(~np.isnan(table).all(axis=axis)) for axis in (1, 0))
    live = table[np.ix_(rows, columns)]
    found = linear_sum_assignment(live, maximize=True)
    match: list[int | None] = [None] * len(table)
    for i, j in zip(*found, strict=True):
        match[int(rows[i])] = int(columns[j])
    far = distances(*table.shape)
    apart = far[np.ix_(rows, columns)]
    steps = apart[found]
    return LayerMatch(
        tuple(match),
        tuple(tuple(None if math.isnan(x) else float(x) for x in row) for row in table),
        float((steps == 0).mean()) if len(steps) else None,
        float(steps.mean()) if len(steps) else None,
        chance(apart, float(steps.mean()), seed) if len(steps) else None,
        *unmatched,
    )


def distances(n_a: int, n_b: int) -> Float[np.ndarray, "L_a L_b"]:
    """How far each pair of layers lies from the diagonal, in layers of the deeper model.

    |l − l'| where depths are equal. Otherwise layer i of the shallower model (n layers) belongs to
    the layer nearest to i (m − 1) / (n − 1) of the deeper one (m layers).
    """
    if n_a > n_b:
        return distances(n_b, n_a).T
    step = (n_b - 1) / (n_a - 1) if n_a > 1 else 0.0
    start = 0.0 if n_a > 1 else (n_b - 1) / 2
    home = np.floor(start + step * np.arange(n_a) + 0.5)
    return np.abs(home[:, None] - np.arange(n_b)[None])


def chance(apart: Float[np.ndarray, "n m"], observed: float, seed: int) -> float:
    """Share of one-to-one matches whose mean distance is at most the observed one."""
    apart = apart if apart.shape[0] <= apart.shape[1] else apart.T
    n, m = apart.shape
    rows, near = np.arange(n), observed + 1e-9
    if math.perm(m, n) <= EXACT:
        every = np.array(list(itertools.permutations(range(m), n)))
        return float((apart[rows, every].mean(axis=1) <= near).mean())
    generator = np.random.default_rng(seed)
    drawn = generator.permuted(np.tile(np.arange(m), (DRAWN, 1)), axis=1)[:, :n]
    hits = int((apart[rows, drawn].mean(axis=1) <= near).sum())
    return (hits + 1) / (DRAWN + 1)


def numbers(layers: Sequence[int]) -> str:
    """`layer 3`, `layers 3, 4`."""
    return ("layer " if len(layers) == 1 else "layers ") + ", ".join(map(str, layers))
