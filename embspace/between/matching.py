"""One-to-one matches of layers, and how close to the diagonal they lie. [DAR] §5.1."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from ..results import Record

EXACT = 50_000  # matches that are all tried, rather than drawn
DRAWN = 20_000
TIE = 1e-6  # matches whose mean scores are this close are equally good: scores are sums of float32
TRIED = 500  # ways in which ties are broken at random


@dataclass(frozen=True)
class LayerMatch(Record):
    """The one-to-one match of layers that makes the sum of their scores largest.

    score: L_a × L_b, mean |ρ|, None where a layer has none; match: the layer of B for every layer
    of A, or None; diagonal: share of matched layers that lie on the diagonal, 0 to 1; distance:
    mean |l − l'| from it, in layers of the deeper model; p: share of one-to-one matches drawn
    evenly whose distance is as small; unmatched_a, unmatched_b: layers without a score, and why;
    equally_good: how many matches are as good as this one, itself among them (a lower bound beyond
    eight layers). Where there are several, `match` is one of them, and diagonal, distance and p are
    means over all of them; None where every match is as good, because the scores say nothing.
    """

    match: tuple[int | None, ...]
    score: tuple[tuple[float | None, ...], ...]
    diagonal: float | None
    distance: float | None
    p: float | None
    unmatched_a: dict[int, str] = field(default_factory=dict)
    unmatched_b: dict[int, str] = field(default_factory=dict)
    equally_good: int = 1

    @property
    def unique(self) -> bool:
        """Whether no other match is as good."""
        return self.equally_good <= 1

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Matched layers (of A, of B)."""
        return [(i, j) for i, j in enumerate(self.match) if j is not None]

    @property
    def n_diagonal(self) -> int:
        """How many of the matched layers lie on the diagonal, to the nearest whole number."""
        return round((self.diagonal or 0.0) * len(self.pairs))


def match_layers(
    score: Float[Tensor, "L_a L_b"],
    *,
    seed: int = 0,
    unmatched: tuple[dict[int, str], dict[int, str]] = ({}, {}),
) -> LayerMatch:
    """Hungarian match of the layers that have scores; rows and columns of NaN stay unmatched.

    The p-value is that of the mean distance from the diagonal, when the match is replaced by one
    drawn evenly from all one-to-one matches of the same layers (all of them where there are at
    most 50,000, else 20,000 drawn by `seed`). Where several matches are equally good, it is the
    mean over them; where all are, there is none.
    """
    table = score.detach().cpu().double().numpy()
    rows, columns = (np.flatnonzero(~np.isnan(table).all(axis=axis)) for axis in (1, 0))
    found = best_matches(table[np.ix_(rows, columns)], seed)
    match: list[int | None] = [None] * len(table)
    for i, j in found.pairs:
        match[int(rows[i])] = int(columns[j])
    apart = distances(*table.shape)[np.ix_(rows, columns)]
    steps = found.distances(apart)
    said = steps.size > 0 and not found.all_equal
    return LayerMatch(
        tuple(match),
        tuple(tuple(None if math.isnan(x) else float(x) for x in row) for row in table),
        float((steps == 0).mean()) if said else None,
        float(steps.mean()) if said else None,
        found.chance(apart, seed) if said else None,
        *unmatched,
        equally_good=found.count,
    )


@dataclass(frozen=True)
class BestMatches:
    """The one-to-one matches with the largest sum of scores, to rounding.

    orders: for each match (drawn with repetition beyond 50,000 possible ones) the column of every
    row of the lesser side; turned: whether these sides are exchanged; count: how many different
    ones; all_equal: whether every possible match is among them, and there is more than one.
    """

    orders: Int[np.ndarray, "matches n"]
    turned: bool
    count: int
    all_equal: bool

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(row, column) of the first match."""
        found = [(i, int(j)) for i, j in enumerate(self.orders[0])]
        return sorted((j, i) for i, j in found) if self.turned else found

    def distances(self, apart: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "matches n"]:
        """The distance from the diagonal of every pair of every match."""
        apart = apart.T if self.turned else apart
        return apart[np.arange(self.orders.shape[1]), self.orders]

    def chance(self, apart: Float[np.ndarray, "n m"], seed: int) -> float:
        """The mean of the p-values of all matches."""
        means, counts = np.unique(self.distances(apart).mean(axis=1), return_counts=True)
        values = [chance(apart, float(mean), seed) for mean in means]
        return float(np.average(values, weights=counts))


def best_matches(score: Float[np.ndarray, "n m"], seed: int = 0) -> BestMatches:
    """All matches whose mean score is within 1e-6 of the best one's; the Hungarian one is first.

    All possible matches are looked at where there are at most 50,000. Else ties are broken 500
    times by random shifts of all scores of at most 1e-6, drawn by `seed`.
    """
    from scipy.optimize import linear_sum_assignment

    turned = score.shape[0] > score.shape[1]
    score = score.T if turned else score
    (n, m), rows = score.shape, np.arange(len(score))
    best, worst = (linear_sum_assignment(score, maximize=most)[1] for most in (True, False))
    possible = math.perm(m, n)
    if not n or possible == 1:
        return BestMatches(best[None], turned, 1, False)
    top, bottom = (float(score[rows, order].mean()) for order in (best, worst))
    if top - bottom <= TIE:
        return BestMatches(best[None], turned, possible, True)
    if possible <= EXACT:
        every = np.array(list(itertools.permutations(range(m), n)))
        orders = every[score[rows, every].mean(axis=1) >= top - TIE]
    else:
        shifts = np.random.default_rng(seed).uniform(-TIE / 2, TIE / 2, (TRIED, n, m))
        orders = np.array([linear_sum_assignment(score + x, maximize=True)[1] for x in shifts])
    others = orders[(orders != best).any(axis=1)]
    count = 1 + len(np.unique(others, axis=0))
    own = len(orders) - len(others)
    return BestMatches(
        np.concatenate([np.tile(best, (max(own, 1), 1)), others]), turned, count, False
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


def tied(where: str, found: LayerMatch) -> list[str]:
    """A sentence where the match is one of several, for a result's notes."""
    if found.unique:
        return []
    if found.p is None and found.pairs:
        return [
            f"{where}: every match is equally good, so the one shown is arbitrary and has no p."
        ]
    return [
        f"{where}: the match shown is one of {found.equally_good} or more that are equally good "
        "(some layers score alike); diagonal, distance and p are means over them."
    ]
