"""The strongest entries of a circuit in vocabulary space, exactly, never forming V × V."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checking import positive
from ..errors import EmbspaceError
from .bounds import screen
from .branch_and_bound import Sweep
from .candidates import Pool, exact_scores, ranked
from .factors import Factor, table_size

__all__ = ["Factor", "TopPairs", "top_of_rows", "top_pairs"]

Ids = Tensor | Sequence[int] | None
Same = bool | Tensor  # pairs left out: none, i = j, or rows of one class
BATCH = 1 << 23


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


@torch.no_grad()
def top_pairs(
    left: Factor,
    right: Factor,
    k: int,
    *,
    smallest: bool = False,
    rows: Ids = None,
    columns: Ids = None,
    exclude_same: Same = False,
) -> TopPairs:
    """The k largest (or smallest) entries of P Q^T, P = E A and Q = F B, exactly.

    score(i, j) = P_i · Q_j, as a dense float64 product would have it. V × V' scores are never
    formed; memory is P, Q and a tile.

    left: E (V × d), A (d × d_h); right: F (V' × d'), B (d' × d_h). rows, columns: ids or boolean
    masks of the rows of E and of F that take part; answers keep the tables' numbering.
    exclude_same: leave out i = j; or, given a number for every row (of both tables alike), pairs of
    rows with one number. Fewer than k pairs are returned only where no more exist.

    How: both sides are projected into the basis that balances them; a high floor under the k-th
    score comes from the longest rows and their best partners; blocks of like rows are ruled out
    against blocks of like columns by a bound that keeps the first coordinate's sign
    (`blocks`); the rest is multiplied in float32, by leading coordinates where there is much of it
    (`short`); what survives with its rigorous rounding margin (`bounds`) is rescored in float64.

    Cost: projecting, (V d + V' d') d_h, is the floor and most of a usual circuit's time; then
    d_h a pair that is not ruled out. Nothing can be ruled out where scores are all alike: rows of
    one length in all directions (random matrices), a k near V × V', or rows that are nearly all
    the same; the last is slowest, since every pair then is a tie that float32 cannot settle.

    Raises EmbspaceError for NaN, infinity, k < 1, ids out of range, or sides that do not meet.
    """
    _check(left, right, k)
    if smallest:
        turned = Factor(left.table, -left.matrix)
        options = {"rows": rows, "columns": columns, "exclude_same": exclude_same}
        found = top_pairs(turned, right, k, **options)
        return TopPairs(found.i, found.j, -found.score)
    row_ids, column_ids = _ids(rows, left, "rows"), _ids(columns, right, "columns")
    classes = _classes(exclude_same, left, right)
    k = min(k, _count_pairs(left, right, row_ids, column_ids, classes))
    if k == 0:
        nothing = torch.empty(0, dtype=torch.int64)
        return TopPairs(nothing, nothing, torch.empty(0, dtype=torch.float64))
    with full_float32():
        seen = screen(left, right, row_ids, column_ids)
        pool = Pool(k, exact_scores(left, right, seen.scale))
        Sweep(seen, pool, classes).run()
    i, j, score = pool.result()
    return TopPairs(i, j, score / seen.scale)


@contextmanager
def full_float32() -> Iterator[None]:
    """Products in real float32, which the margins are made for, whatever the caller allows."""
    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)


def _check(left: Factor, right: Factor, k: int) -> None:
    if left.matrix.shape[1] != right.matrix.shape[1]:
        raise EmbspaceError(
            f"the sides do not meet: widths {left.matrix.shape[1]} and {right.matrix.shape[1]}"
        )
    positive(k)


def _count(factor: Factor, ids: Tensor | None) -> int:
    return factor.n_rows if ids is None else len(ids)


def _count_pairs(
    left: Factor,
    right: Factor,
    rows: Tensor | None,
    columns: Tensor | None,
    classes: Tensor | None,
) -> int:
    """How many pairs take part."""
    n_pairs = _count(left, rows) * _count(right, columns)
    if classes is None:
        return n_pairs
    sides = ((left, rows), (right, columns))
    n_classes = int(classes.max()) + 1
    here, there = (
        torch.bincount(classes[: f.n_rows] if ids is None else classes[ids], minlength=n_classes)
        for f, ids in sides
    )
    return n_pairs - int((here * there).sum())


def _classes(exclude_same: Same, left: Factor, right: Factor) -> Tensor | None:
    """A number for every row of either table; pairs of rows with one number are left out."""
    n, device = max(left.n_rows, right.n_rows), left.table.device
    if isinstance(exclude_same, bool):
        return torch.arange(n, device=device) if exclude_same else None
    if exclude_same.shape != (n,) or int(exclude_same.min()) < 0:
        raise EmbspaceError(
            f"exclude_same: {n} numbers from 0 on, one a row, are needed, "
            f"got {tuple(exclude_same.shape)}"
        )
    return exclude_same.to(device)


def _ids(given: Ids, factor: Factor, name: str) -> Tensor | None:
    """Allowed ids, ascending and once each, from ids or a boolean mask; None means all."""
    if given is None:
        return None
    given = torch.as_tensor(given, device=factor.table.device)
    if given.dtype == torch.bool:
        if given.shape != (factor.n_rows,):
            raise EmbspaceError(
                f"{name}: a mask of {factor.n_rows} is needed, got {tuple(given.shape)}"
            )
        ids = given.nonzero()[:, 0]
    else:
        ids = torch.unique(given.reshape(-1).to(torch.int64))
    if len(ids) and (int(ids[0]) < 0 or int(ids[-1]) >= factor.n_rows):
        raise EmbspaceError(
            f"{name}: ids must lie in 0 … {factor.n_rows - 1}, got {int(ids[0])} … {int(ids[-1])}"
        )
    return None if len(ids) == factor.n_rows else ids


@torch.no_grad()
def top_of_rows(
    left: Factor,
    right: Factor,
    i: Sequence[int] | Tensor,
    k: int,
    *,
    smallest: bool = False,
    columns: Ids = None,
    exclude_same: Same = False,
) -> list[TopPairs]:
    """The k strongest entries of each asked row of P Q^T, P = E A and Q = F B, in float64.

    i: rows of the left table, in any order, repeats allowed; one TopPairs is returned for each.
    columns, exclude_same, smallest: as in `top_pairs`. A column is asked for by swapping the
    sides. Cost: V' d min(n, d_h) a batch of n rows, and V' n scores of memory, 64 MB at a time.

    Raises EmbspaceError as `top_pairs` does.
    """
    _check(left, right, k)
    column_ids = _ids(columns, right, "columns")
    asked = torch.as_tensor(i, dtype=torch.int64).reshape(-1)
    _ids(asked, left, "i")
    numbers = torch.arange(right.n_rows) if column_ids is None else column_ids.cpu()
    classes = _classes(exclude_same, left, right)
    classes = None if classes is None else classes.cpu()
    sign = -1.0 if smallest else 1.0
    found: list[TopPairs] = []
    for part in asked.split(max(1, BATCH // max(1, len(numbers)))):
        scores, blur = _dense_rows(left, right, part, column_ids)
        for row, values, error in zip(part, scores.mul_(sign), blur.tolist(), strict=True):
            if classes is not None:
                same = classes[numbers] == classes[row]
                values[same.to(values.device)] = -float("inf")
            near = _near_top(values, k, error)
            j = numbers[near]
            score = exact_scores(left, right, 1.0)(row.expand(len(j)), j) * sign
            order = ranked(row.expand(len(j)), j, score)[:k]
            found.append(TopPairs(row.expand(len(j))[order], j[order], score[order] * sign))
    return found


def _near_top(values: Tensor, k: int, error: float) -> Tensor:
    """Places of the finite values that may be among the k largest, each off by at most error."""
    k = min(k, int(values.isfinite().sum()))
    if k == 0:
        return torch.empty(0, dtype=torch.int64)
    return (values >= values.topk(k).values[-1] - 2 * error).nonzero()[:, 0].cpu()


def _dense_rows(
    left: Factor, right: Factor, i: Tensor, columns: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Float64 scores (n × V') of a few rows, and how far each row's may be off (n,)."""
    asked, place = torch.unique(i, return_inverse=True)
    p = left.rows64(asked)[place.to(left.matrix.device)]
    matrix = right.matrix.double()
    few = len(p) < matrix.shape[1]
    back = p @ matrix.T if few else matrix.T
    scores = p.new_empty(len(p), right.n_rows if columns is None else len(columns))
    start = 0
    for chunk in right.chunks(columns):
        part = back @ chunk.double().T
        scores[:, start : start + len(chunk)] = part if few else p @ part
        start += len(chunk)
    one, other = table_size(left), table_size(right)
    width = sum(left.matrix.shape) + sum(right.matrix.shape)
    reach = one.row_norms[i.to(one.row_norms.device)].double() * (one.unit * other.unit)
    reach *= float(other.row_norms.max()) if len(other.row_norms) else 0.0
    size = torch.linalg.matrix_norm(left.matrix.double()) * torch.linalg.matrix_norm(matrix)
    if not bool(size.isfinite()):
        raise EmbspaceError("a matrix holds NaN or infinity: there is no strongest pair")
    return scores, reach * size * (width * 2.0**-52)
