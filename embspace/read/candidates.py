"""The pairs still in the running, and the float64 scores that settle who wins."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .factors import Factor

POOL = 1 << 16


class Pool:
    """Pairs that may still be among the k strongest, with what float32 says of each.

    floor: no pair scoring below it (in the screen's scale) can be among the k strongest.
    """

    def __init__(self, k: int, exact: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.k, self.exact, self.floor = k, exact, -float("inf")
        self.capacity = max(4 * k, POOL)
        self.i = self.j = torch.empty(0, dtype=torch.int64)
        self.score = self.margin = torch.empty(0, dtype=torch.float64)

    def add(self, i: Tensor, j: Tensor, score: Tensor, margin: Tensor) -> None:
        """Take in pairs (table ids), their float32 scores and their margins."""
        self.i, self.j = torch.cat([self.i, i.cpu()]), torch.cat([self.j, j.cpu()])
        self.score = torch.cat([self.score, score.double().cpu()])
        self.margin = torch.cat([self.margin, margin.double().cpu()])
        if len(self.i) >= self.k:
            low = self.score - self.margin
            self.floor = max(self.floor, float(low.topk(self.k).values[-1]))
            self._keep(self.score + self.margin >= self.floor)
        if len(self.i) > self.capacity:
            self._settle()

    def _keep(self, which: Tensor) -> None:
        self.i, self.j = self.i[which], self.j[which]
        self.score, self.margin = self.score[which], self.margin[which]

    def _settle(self) -> None:
        """Replace screening scores by exact ones, and keep the k strongest."""
        self.score, self.margin = self.exact(self.i, self.j), torch.zeros(len(self.i)).double()
        self._keep(ranked(self.i, self.j, self.score)[: self.k])
        if len(self.i) == self.k:
            self.floor = max(self.floor, float(self.score[-1]))

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """i, j and exact score (in the screen's scale) of the k strongest pairs."""
        self._settle()
        return self.i, self.j, self.score


def ranked(i: Tensor, j: Tensor, score: Tensor) -> Tensor:
    """The order strongest first, then by i, then by j."""
    order = torch.argsort(j, stable=True)
    order = order[torch.argsort(i[order], stable=True)]
    return order[torch.argsort(score[order], descending=True, stable=True)]


def exact_scores(left: Factor, right: Factor, scale: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Float64 scores of listed pairs, times scale."""

    def score(i: Tensor, j: Tensor) -> Tensor:
        (some_i, at_i), (some_j, at_j) = (torch.unique(x, return_inverse=True) for x in (i, j))
        p, q = left.rows64(some_i), right.rows64(some_j)
        step = max(1, (1 << 21) // max(1, p.shape[1]))
        at_i, at_j = at_i.to(p.device), at_j.to(p.device)
        parts = [
            (p[at_i[s : s + step]] * q[at_j[s : s + step]]).sum(dim=1)
            for s in range(0, len(i), step)
        ]
        return torch.cat(parts).cpu() * scale if parts else torch.empty(0, dtype=torch.float64)

    return score
