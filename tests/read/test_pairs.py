"""The pair search against a dense float64 product: same pairs, same order, same scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from embspace.errors import EmbspaceError
from embspace.read import blocks, factors
from embspace.read import branch_and_bound as sweep
from embspace.read import candidates as pool
from embspace.read import leading as short
from embspace.read.pairs import Factor, TopPairs, top_of_rows, top_pairs


def dense_scores(left: Factor, right: Factor) -> Tensor:
    """All scores in float64, identical rows giving identical scores."""
    p = torch.stack([row @ left.matrix.double() for row in left.table.double()])
    q = torch.stack([row @ right.matrix.double() for row in right.table.double()])
    return torch.stack([(row * q).sum(dim=1) for row in p])


def dense_top(
    left: Factor,
    right: Factor,
    k: int,
    *,
    smallest: bool = False,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    exclude_same: bool | Tensor = False,
) -> list[tuple[int, int, float]]:
    """The k strongest pairs by sorting everything."""
    scores = dense_scores(left, right)
    allowed_i = range(len(scores)) if rows is None else rows.tolist()
    allowed_j = range(scores.shape[1]) if columns is None else columns.tolist()
    listed = [
        (i, j, float(scores[i, j]))
        for i in sorted(set(allowed_i))
        for j in sorted(set(allowed_j))
        if not _same(exclude_same, i, j)
    ]
    sign = 1 if smallest else -1
    return sorted(listed, key=lambda pair: (sign * pair[2], pair[0], pair[1]))[:k]


def _same(exclude_same: bool | Tensor, i: int, j: int) -> bool:
    if isinstance(exclude_same, bool):
        return exclude_same and i == j
    return bool(exclude_same[i] == exclude_same[j])


def classes(left: Factor, right: Factor, seed: int) -> Tensor:
    """A number for every row, a few rows each."""
    n = max(left.n_rows, right.n_rows)
    return torch.randint(0, max(1, n // 3), (n,), generator=torch.Generator().manual_seed(seed))


def assert_same(found: TopPairs, expected: list[tuple[int, int, float]], scores: Tensor) -> None:
    """Equal scores in order; each pair has its score; pairs equal but for near ties."""
    assert len(found) == len(expected)
    assert found.i.dtype == found.j.dtype == torch.int64 and found.score.dtype == torch.float64
    if not expected:
        return
    wanted = torch.tensor([pair[2] for pair in expected], dtype=torch.float64)
    noise = 1e-12 * float(scores.abs().max())
    torch.testing.assert_close(found.score, wanted, rtol=1e-9, atol=noise)
    torch.testing.assert_close(scores[found.i, found.j], found.score, rtol=1e-9, atol=noise)
    listed = list(zip(found.i.tolist(), found.j.tolist(), strict=True))
    assert len(set(listed)) == len(listed)
    kth = float(wanted[-1])
    sure = {(i, j) for i, j, score in expected if abs(score - kth) > 2 * noise}
    assert sure <= set(listed)


KINDS = ("normal", "mean", "duplicates", "zeros", "low rank", "range", "one row", "half", "double")


def make(kind: str, n_rows: int, d: int, d_h: int, seed: int) -> Factor:
    """A factor with one of the difficulties that real tables have."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(n_rows, d, generator=generator)
    matrix = torch.randn(d, d_h, generator=generator)
    if kind == "mean":
        table += 5 * torch.randn(d, generator=generator)
    elif kind == "duplicates":
        table = table[torch.randint(0, max(1, n_rows // 4), (n_rows,), generator=generator)]
    elif kind == "zeros":
        table[torch.rand(n_rows, generator=generator) < 0.7] = 0
    elif kind == "low rank":
        matrix = matrix[:, :1] @ torch.randn(1, d_h, generator=generator)
    elif kind == "range":
        table *= 10 ** (24 * torch.rand(n_rows, 1, generator=generator) - 12)
        matrix *= 10 ** (8 * torch.rand(1, d_h, generator=generator) - 4)
    elif kind == "one row":
        table[:] = table[:1].clone()
    elif kind == "half":
        table, matrix = table.bfloat16(), matrix.half()
    elif kind == "double":
        table, matrix = table.double() * 1e60, matrix.double() * 1e-70
    return Factor(table, matrix)


@settings(max_examples=100, deadline=None)
@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(1, 8)),
    k=st.sampled_from([1, 2, 7, 50, 5000]),
    smallest=st.booleans(),
    exclude_same=st.sampled_from([False, True, "classes"]),
    filtered=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_equals_sorting_the_dense_product(
    kinds: tuple[str, str],
    shape: tuple[int, int, int, int],
    k: int,
    smallest: bool,
    exclude_same: bool | str,
    filtered: bool,
    seed: int,
) -> None:
    n_rows, n_columns, d, d_h = shape
    left = make(kinds[0], n_rows, d, d_h, seed)
    right = make(kinds[1], n_columns, d, d_h, seed + 1)
    rows = columns = None
    if filtered:
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(0, n_rows, (n_rows,), generator=generator)
        columns = torch.randint(0, n_columns, (n_columns // 2,), generator=generator)
    same = classes(left, right, seed) if exclude_same == "classes" else exclude_same
    options = {"smallest": smallest, "exclude_same": same, "columns": columns}
    expected = dense_top(left, right, k, rows=rows, **options)
    found = top_pairs(left, right, k, rows=rows, **options)
    assert_same(found, expected, dense_scores(left, right))


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    shape=st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(1, 8)),
    k=st.sampled_from([1, 5, 100]),
    smallest=st.booleans(),
    exclude_same=st.sampled_from([False, True, "classes"]),
    seed=st.integers(0, 10_000),
)
def test_rows_equal_the_dense_product(
    kinds: tuple[str, str],
    shape: tuple[int, int, int, int],
    k: int,
    smallest: bool,
    exclude_same: bool | str,
    seed: int,
) -> None:
    n_rows, n_columns, d, d_h = shape
    left = make(kinds[0], n_rows, d, d_h, seed)
    right = make(kinds[1], n_columns, d, d_h, seed + 1)
    generator = torch.Generator().manual_seed(seed)
    asked = torch.randint(0, n_rows, (n_rows,), generator=generator)
    columns = torch.randint(0, n_columns, (n_columns,), generator=generator)
    same = classes(left, right, seed) if exclude_same == "classes" else exclude_same
    options = {"smallest": smallest, "exclude_same": same, "columns": columns}
    found = top_of_rows(left, right, asked.tolist(), k, **options)
    assert len(found) == len(asked)
    for row, mine in zip(asked, found, strict=True):
        expected = dense_top(left, right, k, rows=row[None], **options)
        assert_same(mine, expected, dense_scores(left, right))


@pytest.mark.parametrize("smallest", [False, True])
def test_ties_are_broken_by_row_then_column(smallest: bool) -> None:
    table = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    table = table[torch.tensor([3, 1, 0, 1, 2, 1, 3, 0, 1, 1])]
    a, b = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(2))
    left, right = Factor(table, a), Factor(table, b)
    for k in (1, 3, 10, 37, 100):
        found = top_pairs(left, right, k, smallest=smallest)
        expected = dense_top(left, right, k, smallest=smallest)
        assert found.i.tolist() == [pair[0] for pair in expected]
        assert found.j.tolist() == [pair[1] for pair in expected]


def test_all_scores_zero_gives_the_first_pairs() -> None:
    table = torch.randn(20, 4)
    found = top_pairs(Factor(table, torch.zeros(4, 2)), Factor(table, torch.ones(4, 2)), 23)
    assert found.i.tolist() == [0] * 20 + [1] * 3
    assert found.j.tolist() == [*range(20), 0, 1, 2]
    assert not found.score.any()


def larger(seed: int = 0, n_rows: int = 900, n_columns: int = 700) -> tuple[Factor, Factor]:
    """Big enough for many blocks: a common mean, uneven lengths, some rows twice."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(n_rows, 24, generator=generator) + 0.7
    left *= torch.rand(n_rows, 1, generator=generator) + 0.5
    right = torch.cat([left[: n_columns // 2], torch.randn(n_columns, 24, generator=generator)])
    a, b = torch.randn(2, 24, 8, generator=generator)
    return Factor(left, a), Factor(right[:n_columns], b)


@pytest.mark.parametrize("k", [1, 50, 3000])
@pytest.mark.parametrize("smallest", [False, True])
def test_blocks_lose_nothing(k: int, smallest: bool) -> None:
    left, right = larger()
    scores = dense_scores(left, right)
    values, places = scores.flatten().topk(k, largest=not smallest)
    found = top_pairs(left, right, k, smallest=smallest)
    torch.testing.assert_close(found.score, values, rtol=1e-12, atol=1e-12)
    assert set((found.i * scores.shape[1] + found.j).tolist()) == set(places.tolist())


def test_result_does_not_depend_on_blocks_tiles_chunks_or_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right = larger(3)
    reference = top_pairs(left, right, 200, exclude_same=True)
    settings_tried = [
        (sweep, "TILE", 1),
        (sweep, "TILE", 1000),
        (blocks, "MOST_BOUNDS", 8),
        (blocks, "SLABS", 1),
        (blocks, "SEEDS", 1),
        (factors, "CHUNK_BYTES", 1),
        (pool, "POOL", 1),
        (sweep, "MANY", 0),
        (sweep, "CELL", 1),
        (sweep, "GATHER", 1),
    ]
    for module, name, value in settings_tried:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            found = top_pairs(left, right, 200, exclude_same=True)
        for one in ("i", "j", "score"):
            assert torch.equal(getattr(found, one), getattr(reference, one)), (name, value)


def test_most_pairs_are_ruled_out_where_a_few_rows_stand_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(5000, 16, generator=generator)
    table[::100] *= 4
    a, b = torch.randn(2, 16, 8, generator=generator)
    computed = 0
    tile = sweep.Sweep.tile

    def counting(self: sweep.Sweep, points: Tensor, others: Tensor, *rest: Any) -> None:
        nonlocal computed
        computed += len(points) * len(rest[1])
        tile(self, points, others, *rest)

    monkeypatch.setattr(sweep.Sweep, "tile", counting)
    top_pairs(Factor(table, a), Factor(table, b), 20)
    assert 0 < computed < 0.05 * 5000**2


@pytest.mark.parametrize("k", [50, 300])
def test_short_points_lose_nothing_and_are_used(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.nn.functional.normalize(torch.randn(1200, 40, generator=generator), dim=1)
    falling = 0.8 ** torch.arange(16.0)
    a, b = torch.randn(2, 40, 16, generator=generator) * falling
    left, right = Factor(table, a), Factor(table, b)
    scores = (table.double() @ a.double()) @ (table.double() @ b.double()).T
    values, places = scores.flatten().topk(k)
    widths = set()
    tile = sweep.Sweep.tile

    def noting(self: sweep.Sweep, points: Tensor, *rest: Any) -> None:
        widths.add(points.shape[1])
        tile(self, points, *rest)

    monkeypatch.setattr(sweep, "MANY", 0)
    monkeypatch.setattr(short, "SAMPLE", 1)
    monkeypatch.setattr(short, "SURVIVOR", 0)
    monkeypatch.setattr(sweep.Sweep, "tile", noting)
    found = top_pairs(left, right, k)
    torch.testing.assert_close(found.score, values, rtol=1e-11, atol=1e-11)
    assert set((found.i * 1200 + found.j).tolist()) == set(places.tolist())
    assert min(widths) < 16


def test_short_points_never_understate_a_score() -> None:
    left, right = torch.randn(2, 50, 16, generator=torch.Generator().manual_seed(0))
    lengths = short.Lengths(left, right, cut=True)
    assert [one.shape[1] for one, _ in lengths.sides] == [3, 5, 7, 9, 16]
    for one, other in lengths.sides:
        assert bool((one @ other.T >= left @ right.T - 1e-5).all())


def test_margins_hold_for_every_pair() -> None:
    for kind in ("normal", "mean", "low rank", "range"):
        left, right = make(kind, 60, 12, 8, 5), make(kind, 50, 12, 8, 6)
        seen = blocks_screen(left, right)
        found = seen.left.points @ seen.right.points.T
        off = (found.double() - dense_scores(left, right) * seen.scale).abs()
        i, j = torch.meshgrid(torch.arange(60), torch.arange(50), indexing="ij")
        assert bool((off <= seen.margin(i, j)).all()), kind
        assert float(seen.margin(i, j).max()) <= seen.largest_margin()


def blocks_screen(left: Factor, right: Factor):
    """Both sides in the search basis."""
    from embspace.read.bounds import screen

    return screen(left, right, None, None)


def test_masks_and_ids_are_the_same_filter() -> None:
    left, right = larger(4, 120, 90)
    mask = torch.arange(120) % 3 == 0
    by_mask = top_pairs(left, right, 15, rows=mask, columns=torch.arange(10, 60))
    by_ids = top_pairs(left, right, 15, rows=mask.nonzero()[:, 0], columns=list(range(10, 60)))
    assert torch.equal(by_mask.i, by_ids.i) and torch.equal(by_mask.j, by_ids.j)
    assert bool(mask[by_mask.i].all()) and 10 <= int(by_mask.j.min()) <= int(by_mask.j.max()) < 60


def test_nothing_allowed_gives_nothing() -> None:
    left, right = larger(5, 20, 20)
    none = torch.zeros(20, dtype=torch.bool)
    assert len(top_pairs(left, right, 5, rows=none)) == 0
    assert len(top_pairs(left, right, 5, rows=[3], columns=[3], exclude_same=True)) == 0
    assert len(top_of_rows(left, right, [3], 5, columns=[3], exclude_same=True)[0]) == 0
    assert top_of_rows(left, right, [], 5) == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["table", "matrix"])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_finite_is_refused(bad: float, where: str, side: int) -> None:
    sides = list(larger(6, 30, 30))
    broken = getattr(sides[side], where).clone()
    broken[2, 1] = bad
    parts = {"table": sides[side].table, "matrix": sides[side].matrix, where: broken}
    sides[side] = Factor(**parts)
    with pytest.raises(EmbspaceError, match="NaN or infinity"):
        top_pairs(*sides, 3)
    with pytest.raises(EmbspaceError, match="NaN or infinity"):
        top_of_rows(*sides, [0], 3)


def test_a_table_changed_in_place_is_measured_again() -> None:
    left, right = larger(7, 30, 30)
    top_pairs(left, right, 3)
    left.table[0, 0] = float("nan")
    with pytest.raises(EmbspaceError, match="NaN or infinity"):
        top_pairs(left, right, 3)


def test_wrong_arguments_are_refused_in_one_sentence() -> None:
    left, right = larger(8, 10, 10)
    narrow = Factor(right.table, right.matrix[:, :3])
    with pytest.raises(EmbspaceError, match="do not meet"):
        top_pairs(left, narrow, 3)
    with pytest.raises(EmbspaceError, match="k must be"):
        top_pairs(left, right, 0)
    with pytest.raises(EmbspaceError, match="0 … 9"):
        top_pairs(left, right, 3, rows=[10])
    with pytest.raises(EmbspaceError, match="0 … 9"):
        top_of_rows(left, right, [-1], 3)
    with pytest.raises(EmbspaceError, match="mask of 10"):
        top_pairs(left, right, 3, columns=torch.ones(9, dtype=torch.bool))
    with pytest.raises(EmbspaceError, match="does not meet"):
        Factor(left.table, left.matrix[:5])
    with pytest.raises(EmbspaceError, match="floating"):
        Factor(left.table.long(), left.matrix)
    with pytest.raises(EmbspaceError, match="non-empty"):
        Factor(left.table, left.matrix[:, :0])


def test_parameters_that_ask_for_gradients_are_read_without() -> None:
    left, right = larger(9, 30, 30)
    wanted = Factor(left.table, torch.nn.Parameter(left.matrix))
    assert not top_pairs(wanted, right, 3).score.requires_grad
    assert not top_of_rows(wanted, right, [1], 3)[0].score.requires_grad


def test_reduced_precision_products_do_not_leak_in_and_the_setting_is_kept() -> None:
    left, right = larger(10, 200, 200)
    reference = top_pairs(left, right, 20)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found = top_pairs(left, right, 20)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(found.i, reference.i) and torch.equal(found.score, reference.score)
