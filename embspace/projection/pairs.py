"""The strongest entries of a circuit in vocabulary space, exactly, never forming V × V."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embspace.errors import EmbspaceError
from embspace.projection.blocks import alive, ceilings, cut, first_floor, sizes, tail_norms
from embspace.projection.bounds import UNDERFLOW, Screen, screen
from embspace.projection.factors import Factor

__all__ = ["Factor", "TopPairs", "top_of_rows", "top_pairs"]

TILE = 1 << 18
POOL = 1 << 16


@dataclass(frozen=True)
class TopPairs:
    """Pairs of table rows and their scores, strongest first; ties by (i, j) ascending.

    i, j: (k,) int64; score: (k,) float64; all on the CPU.
    """

    i: Tensor
    j: Tensor
    score: Tensor

    def __len__(self) -> int:
        return len(self.score)


class _Pool:
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
        self._keep(_ranked(self.i, self.j, self.score)[: self.k])
        if len(self.i) == self.k:
            self.floor = max(self.floor, float(self.score[-1]))

    def result(self, scale: float) -> TopPairs:
        """The k strongest pairs, rescored in float64."""
        self._settle()
        return TopPairs(self.i, self.j, self.score / scale)


def _ranked(i: Tensor, j: Tensor, score: Tensor) -> Tensor:
    """The order strongest first, then by i, then by j."""
    order = torch.argsort(j, stable=True)
    order = order[torch.argsort(i[order], stable=True)]
    return order[torch.argsort(score[order], descending=True, stable=True)]


def _exact(left: Factor, right: Factor, scale: float) -> Callable[[Tensor, Tensor], Tensor]:
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


def top_pairs(
    left: Factor,
    right: Factor,
    k: int,
    *,
    smallest: bool = False,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    exclude_same: bool = False,
) -> TopPairs:
    """The k largest (or smallest) entries of (E A) (F B)^T, exactly.

    left: E (V × d), A (d × d_h); right: F (V' × d'), B (d' × d_h). rows, columns: ids (or boolean
    masks) of the rows of E and F that take part; exclude_same leaves out pairs with i = j.
    Raises EmbspaceError for NaN, infinity, k < 1, ids out of range or sides that do not meet.
    """
    _check(left, right, k)
    if smallest:
        found = top_pairs(
            Factor(left.table, -left.matrix),
            right,
            k,
            rows=rows,
            columns=columns,
            exclude_same=exclude_same,
        )
        return TopPairs(found.i, found.j, -found.score)
    row_ids, column_ids = _ids(rows, left, "rows"), _ids(columns, right, "columns")
    n_pairs = _count(left, row_ids) * _count(right, column_ids)
    if n_pairs == 0:
        nothing = torch.empty(0, dtype=torch.int64)
        return TopPairs(nothing, nothing, torch.empty(0, dtype=torch.float64))
    seen = screen(left, right, row_ids, column_ids)
    pool = _Pool(min(k, n_pairs), _exact(left, right, seen.scale))
    _Search(seen, pool, exclude_same).run()
    return pool.result(seen.scale)


def _check(left: Factor, right: Factor, k: int) -> None:
    if left.matrix.shape[1] != right.matrix.shape[1]:
        raise EmbspaceError(
            f"the sides do not meet: widths {left.matrix.shape[1]} and {right.matrix.shape[1]}"
        )
    if k < 1:
        raise EmbspaceError(f"k must be at least 1, got {k}")


def _count(factor: Factor, ids: Tensor | None) -> int:
    return factor.n_rows if ids is None else len(ids)


def _ids(given: Tensor | Sequence[int] | None, factor: Factor, name: str) -> Tensor | None:
    """Allowed ids, ascending and once each, from ids or a boolean mask; None means all."""
    if given is None:
        return None
    given = torch.as_tensor(given, device=factor.table.device)
    if given.dtype == torch.bool:
        if given.shape != (factor.n_rows,):
            raise EmbspaceError(
                f"{name}: a mask of {factor.n_rows} is needed, got {tuple(given.shape)}"
            )
        return given.nonzero()[:, 0]
    ids = torch.unique(given.reshape(-1).to(torch.int64))
    if len(ids) and (int(ids[0]) < 0 or int(ids[-1]) >= factor.n_rows):
        raise EmbspaceError(
            f"{name}: ids must lie in 0 … {factor.n_rows - 1}, got {int(ids[0])} … {int(ids[-1])}"
        )
    return ids


class _Search:
    """Every pair of blocks whose ceiling reaches the pool's floor is computed, best rows first."""

    def __init__(self, seen: Screen, pool: _Pool, exclude_same: bool) -> None:
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


def top_of_rows(
    left: Factor,
    right: Factor,
    i: Sequence[int],
    k: int,
    *,
    smallest: bool = False,
    columns: Tensor | None = None,
    exclude_same: bool = False,
) -> list[TopPairs]:
    """The k strongest entries of each asked row of (E A) (F B)^T, in float64.

    i: rows of the left table, in any order, repeats allowed; the answer has one TopPairs a row.
    A column is asked for by swapping left and right. Cost: V' × (d + n) × d_h a batch of n rows.
    Raises EmbspaceError as `top_pairs` does.
    """
    _check(left, right, k)
    column_ids = _ids(columns, right, "columns")
    asked = torch.as_tensor(i, dtype=torch.int64).reshape(-1)
    _ids(asked, left, "i")
    n_columns = _count(right, column_ids)
    step = max(1, (1 << 23) // max(1, n_columns))
    found: list[TopPairs] = []
    for start in range(0, len(asked), step):
        part = asked[start : start + step]
        scores = _dense_rows(left, right, part, column_ids)
        found += _best(left, right, part, scores, k, smallest, column_ids, exclude_same)
    return found


def _dense_rows(left: Factor, right: Factor, i: Tensor, columns: Tensor | None) -> Tensor:
    """Float64 scores (n × V') of a few rows against every allowed column."""
    asked, place = torch.unique(i, return_inverse=True)
    device = left.matrix.device
    p = left.rows64(asked)[place.to(device)]
    matrix = right.matrix.double()
    scores = torch.empty(len(p), _count(right, columns), dtype=torch.float64, device=device)
    start = 0
    for chunk in right.chunks(columns):
        scores[:, start : start + len(chunk)] = p @ (chunk.double() @ matrix).T
        start += len(chunk)
    if not bool(scores.isfinite().all()):
        raise EmbspaceError("a weight or table holds NaN or infinity: there is no strongest pair")
    return scores


def _best(
    left: Factor,
    right: Factor,
    i: Tensor,
    scores: Tensor,
    k: int,
    smallest: bool,
    columns: Tensor | None,
    exclude_same: bool,
) -> list[TopPairs]:
    """Cut each row of scores down to its k strongest, ties by column."""
    sign = -1.0 if smallest else 1.0
    numbers = torch.arange(scores.shape[1], device=scores.device) if columns is None else columns
    exact = _exact(left, right, 1.0)
    found = []
    for row, values in zip(i, scores * sign, strict=True):
        if exclude_same:
            values = values.masked_fill(numbers == row.to(numbers.device), -float("inf"))
        n_kept = min(k, int((values > -float("inf")).sum()))
        if n_kept:
            cut = values.topk(n_kept).values[-1]
            cut = cut - 1e-11 * values[values > -float("inf")].abs().max()
            j = numbers[values >= cut].cpu()
        else:
            j = torch.empty(0, dtype=torch.int64)
        score = exact(row.expand(len(j)), j) * sign
        order = _ranked(row.expand(len(j)), j, score)[:n_kept]
        found.append(TopPairs(row.expand(len(j))[order], j[order], score[order] * sign))
    return found
