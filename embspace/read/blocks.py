"""Rows in blocks of like rows, so that whole blocks of pairs can be ruled out at once.

In the balanced basis one coordinate carries far more than any other: the embedding's mean, which
gives most scores a large common part, often of the sign that is not sought. Norms alone do not
see that sign. So the first coordinate x is bounded as it is and only the others by their norm t:

    p · q <= x y + t u        p = (x, tail of norm t), q = (y, tail of norm u)

and for a block of rows against a block of columns, x in [x0, x1], t <= t1, y in [y0, y1], u <= u1:

    p · q <= max(x0 y0, x0 y1, x1 y0, x1 y1) + t1 u1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .bounds import ROUNDOFF, UNDERFLOW, Screen, Side

SLABS = 12
SEEDS = 16
MOST_BOUNDS = 1 << 24


@dataclass(frozen=True)
class Blocks:
    """Some rows of one side, in blocks of equal size (the last may be shorter).

    grid: (n_blocks, size) places in the side, the last block filled up with its last place `over`
    times; low, high: (n_blocks,) range of the first coordinate in a block; tail, norm, reach:
    (n_blocks,) largest norms of the other coordinates, of the points, and of the table's rows.
    """

    grid: Tensor
    over: int
    low: Tensor
    high: Tensor
    tail: Tensor
    norm: Tensor
    reach: Tensor

    def places(self, blocks: Tensor) -> Tensor:
        """Places in the side of all rows of these blocks, which must be ascending."""
        places = self.grid.index_select(0, blocks).view(-1)
        last = self.over > 0 and len(blocks) > 0 and int(blocks[-1]) == len(self.grid) - 1
        return places[: -self.over] if last else places


def cut(side: Side, tail: Tensor, alive: Tensor, size: int) -> Blocks:
    """Blocks of the rows `alive`, alike in first coordinate and tail norm.

    The rows are put in slabs by the one, each about as full as another, and ordered by the other
    within a slab, the largest first.
    """
    first, tail = side.points[alive, 0], tail[alive]
    sample = first[:: -(-len(first) // 4096)].sort().values
    edges = sample[torch.arange(1, SLABS, device=first.device) * len(sample) // SLABS]
    order = torch.argsort(torch.bucketize(first, edges) - tail / (tail.max() * 1.001 + 1e-30))
    over = -len(order) % size
    order = torch.cat([order, order[-1:].expand(over)]) if over else order
    first = first[order].view(-1, size)
    grid = alive[order].view(-1, size)
    tails, norms, reaches = tail[order].view(-1, size), side.norms[grid], side.reach[grid]
    peaks = (x.amax(dim=1) for x in (first, tails, norms, reaches))
    return Blocks(grid, over, first.amin(dim=1), *peaks)


def alive(side: Side, tail: Tensor, other: Side, other_tail: Tensor, floor: float) -> Tensor:
    """Places of the rows that the other side as a whole does not rule out.

    floor: what a pair must reach, less the largest margin.
    """
    first, others = side.points[:, 0], other.points[:, 0]
    highest = torch.maximum(first * others.min(), first * others.max()) + tail * other_tail.max()
    return (highest >= floor).nonzero()[:, 0]


def tail_norms(side: Side) -> Tensor:
    """Norms of all coordinates but the first, rounded up."""
    hidden = (side.points.shape[1] + 16) * 2 * ROUNDOFF
    squares = side.norms.square()
    rest = squares - side.points[:, 0].square() + squares * hidden
    return rest.clamp_min(0).sqrt() * (1 + 8 * ROUNDOFF)


def ceilings(left: Blocks, right: Blocks, seen: Screen) -> Tensor:
    """What no score of a block of rows and a block of columns exceeds, margins included.

    (n_left, n_right), in the scale of the screen.
    """
    highest = torch.outer(left.low, right.low)
    corner = torch.empty_like(highest)
    for x, y in ((left.low, right.high), (left.high, right.low), (left.high, right.high)):
        torch.maximum(highest, torch.outer(x, y, out=corner), out=highest)
    by_reach, by_norm = (x[right.grid].amax(dim=1) for x in (seen.by_reach, seen.by_norm))
    highest.addr_(left.tail, right.tail)
    highest.addr_(left.reach, by_reach)
    return highest.addr_(left.norm, by_norm).add_(UNDERFLOW)


def sizes(n_left: int, n_right: int) -> tuple[int, int]:
    """Block sizes of the two sides: fine enough to prune, coarse enough to multiply well."""
    rows, columns = 128, 16
    while (n_left // rows + 1) * (n_right // columns + 1) > MOST_BOUNDS:
        rows, columns = rows * 2, columns * 2
    return rows, columns


def first_floor(seen: Screen, k: int, classes: Tensor | None) -> float:
    """A float32 score that k different pairs reach, found cheaply; minus infinity if k is large.

    The few longest rows are scored against all columns, then the columns that came out best
    against all rows; and the same from the columns. Each of the many counts with its best only,
    so that no pair counts twice. classes: rows of one class make no pair.
    """
    floor = -float("inf")
    for one, other in ((seen.left, seen.right), (seen.right, seen.left)):
        few = one.norms.topk(min(SEEDS, len(one.norms))).indices
        for _ in range(2):
            if k > len(other.points):
                break
            scores = other.points @ one.points[few].T
            if classes is not None:
                same = classes[other.ids][:, None] == classes[one.ids[few]]
                scores.masked_fill_(same, -float("inf"))
            best, which = scores.amax(dim=1).topk(max(k, min(SEEDS, len(scores))))
            floor = max(floor, float(best[k - 1]))
            few, one, other = which[:SEEDS], other, one
    return floor
