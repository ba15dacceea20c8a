"""The search itself: blocks of pairs, best first, until the floor rules out what is left."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .blocks import alive, ceilings, cut, first_floor, sizes, tail_norms
from .bounds import UNDERFLOW, Screen
from .cancel import stop_if_given_up
from .candidates import Pool
from .leading import Lengths

TILE = 1 << 18
CELL = 32
GATHER = 1 << 22
MANY = 1 << 30


class Sweep:
    """Every pair of blocks whose ceiling reaches the pool's floor is computed, best rows first."""

    def __init__(self, seen: Screen, pool: Pool, classes: Tensor | None) -> None:
        self.seen, self.pool, self.classes = seen, pool, classes
        slack = seen.largest_margin()
        pool.floor = first_floor(seen, pool.k, classes) - slack
        one, other = seen.left, seen.right
        tails = tail_norms(one), tail_norms(other)
        rows = alive(one, tails[0], other, tails[1], pool.floor - slack)
        columns = alive(other, tails[1], one, tails[0], pool.floor - slack)
        row_size, column_size = sizes(len(rows), len(columns))
        self.left = cut(one, tails[0], rows, row_size)
        self.right = cut(other, tails[1], columns, column_size)
        # Fresh megabytes cost more (the kernel clears every page) than the product itself.
        self.step = max(1, TILE // row_size)
        self.gathered = other.points.new_empty(self.step * other.points.shape[1])
        self.scores = one.points.new_empty(row_size * self.step)

    def run(self) -> None:
        """Fill the pool."""
        left, right, pool, seen = self.left, self.right, self.pool, self.seen
        highest = ceilings(left, right, seen)
        best, turn = highest.amax(dim=1).sort(descending=True)
        n_open = int((highest >= pool.floor).sum()) * left.grid.shape[1] * right.grid.shape[1]
        lengths = Lengths(seen.left.points, seen.right.points, cut=n_open >= MANY)
        slacks = left.reach * seen.by_reach.max() + left.norm * seen.by_norm.max()
        slacks = (slacks * 1.0001 + UNDERFLOW).tolist()
        for ceiling, block in zip(best.tolist(), turn.tolist(), strict=True):
            if ceiling < pool.floor:
                return
            rows = left.places(turn.new_tensor([block]))
            columns = right.places((highest[block] >= pool.floor).nonzero()[:, 0])
            points, others = lengths.choose(rows, columns, pool.floor - slacks[block])
            for some in columns.split(self.step):
                self.tile(points, others, rows, some, slacks[block])

    def tile(
        self, points: Tensor, others: Tensor, rows: Tensor, columns: Tensor, slack: float
    ) -> None:
        """Multiply one block in float32, look for cells that may hold a pair, and the pairs."""
        stop_if_given_up()
        width = points.shape[1]
        gathered = self.gathered[: len(columns) * width].view(-1, width)
        torch.index_select(others, 0, columns, out=gathered)
        scores = self.scores[: len(rows) * len(columns)].view(len(rows), len(columns))
        torch.mm(points, gathered.T, out=scores)
        cut_off = self.pool.floor - slack
        cell = math.gcd(len(columns), CELL)
        folded = scores.view(len(rows), cell, -1)
        hot_row, hot = (folded.amax(dim=1) >= cut_off).nonzero(as_tuple=True)
        if len(hot):
            at, inside = (folded[hot_row, :, hot] >= cut_off).nonzero(as_tuple=True)
            places = inside * folded.shape[2] + hot[at]
            self.keep(rows[hot_row[at]], columns[places])

    def keep(self, i: Tensor, j: Tensor) -> None:
        """Pool the pairs that their float32 scores and rounding margins leave in the running."""
        one, other = self.seen.left, self.seen.right
        if self.classes is not None:
            different = self.classes[one.ids[i]] != self.classes[other.ids[j]]
            i, j = i[different], j[different]
        step = max(1, GATHER // one.points.shape[1])
        for i_part, j_part in zip(i.split(step), j.split(step), strict=True):
            score = (one.points[i_part] * other.points[j_part]).sum(dim=1)
            margin = self.seen.margin(i_part, j_part)
            fine = score + margin >= self.pool.floor
            ids = one.ids[i_part[fine]], other.ids[j_part[fine]]
            self.pool.add(*ids, score[fine], margin[fine])
