"""The search itself: blocks of pairs, best first, until the floor rules out what is left."""

from __future__ import annotations

import torch
from torch import Tensor

from .blocks import alive, ceilings, cut, first_floor, sizes, tail_norms
from .bounds import UNDERFLOW, Screen
from .pool import Pool

TILE = 1 << 18


class Sweep:
    """Every pair of blocks whose ceiling reaches the pool's floor is computed, best rows first."""

    def __init__(self, seen: Screen, pool: Pool, exclude_same: bool) -> None:
        self.seen, self.pool, self.exclude_same = seen, pool, exclude_same
        slack = seen.largest_margin()
        pool.floor = first_floor(seen, pool.k, exclude_same) - slack
        one, other = seen.left, seen.right
        tails = tail_norms(one), tail_norms(other)
        rows = alive(one, tails[0], other, tails[1], pool.floor - slack)
        columns = alive(other, tails[1], one, tails[0], pool.floor - slack)
        row_size, column_size = sizes(len(rows), len(columns))
        self.left = cut(one, tails[0], rows, row_size)
        self.right = cut(other, tails[1], columns, column_size)
        # Fresh megabytes cost more (the kernel clears every page) than the product itself.
        self.step = max(1, TILE // row_size)
        self.gathered = other.points.new_empty(self.step, other.points.shape[1])
        self.scores = one.points.new_empty(row_size * self.step)

    def run(self) -> None:
        """Fill the pool."""
        left, right, pool, seen = self.left, self.right, self.pool, self.seen
        highest = ceilings(left, right, seen)
        best, turn = highest.amax(dim=1).sort(descending=True)
        slacks = left.reach * seen.by_reach.max() + left.norm * seen.by_norm.max()
        slacks = (slacks * 1.0001 + UNDERFLOW).tolist()
        for ceiling, block in zip(best.tolist(), turn.tolist(), strict=True):
            if ceiling < pool.floor:
                return
            rows = left.places(turn.new_tensor([block]))
            columns = right.places((highest[block] >= pool.floor).nonzero()[:, 0])
            points = seen.left.points[rows]
            for some in columns.split(self.step):
                self.tile(points, rows, some, slacks[block])

    def tile(self, points: Tensor, rows: Tensor, columns: Tensor, slack: float) -> None:
        """Screen one block of scores in float32, and pool what may be strong enough."""
        seen = self.seen
        gathered = self.gathered[: len(columns)]
        torch.index_select(seen.right.points, 0, columns, out=gathered)
        scores = self.scores[: len(rows) * len(columns)].view(len(rows), len(columns))
        torch.mm(points, gathered.T, out=scores)
        cut_off = self.pool.floor - slack
        hot = (scores.amax(dim=1) >= cut_off).nonzero()[:, 0]
        if len(hot):
            scores = scores[hot]
            at_i, at_j = (scores >= cut_off).nonzero().T
            self.keep(rows[hot[at_i]], columns[at_j], scores[at_i, at_j])

    def keep(self, i: Tensor, j: Tensor, score: Tensor) -> None:
        """Pool the pairs that their own rounding margins leave in the running."""
        seen = self.seen
        margin = seen.margin(i, j)
        fine = score + margin >= self.pool.floor
        i_ids, j_ids = seen.left.ids[i], seen.right.ids[j]
        if self.exclude_same:
            fine &= i_ids != j_ids
        self.pool.add(i_ids[fine], j_ids[fine], score[fine], margin[fine])
