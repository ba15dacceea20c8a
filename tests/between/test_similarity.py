"""CKA, rotations and linear maps against dense formulas, scipy and sklearn."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes as scipy_procrustes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from embspace.between.similarity import (
    LinearFit,
    debiased_cka,
    largest_rows,
    orthogonal_procrustes,
    split_by_text,
)
from embspace.errors import EmbspaceError


def drawn(n, d, seed=0, mean=0.0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) + mean


def dense_hsic(x, y):
    """Song et al. 2012, equation 5, with the n × n matrices themselves."""
    K, L = ((z.double() @ z.double().T).fill_diagonal_(0) for z in (x, y))
    n, one = len(K), torch.ones(len(K), dtype=torch.float64)
    terms = (
        torch.trace(K @ L)
        + (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
        - 2 / (n - 2) * (one @ K @ L @ one)
    )
    return float(terms / (n * (n - 3)))


@pytest.mark.parametrize(("n", "d_a", "d_b"), [(5, 3, 4), (40, 6, 9), (30, 64, 10)])
def test_debiased_cka_is_that_of_the_dense_kernels(n, d_a, d_b):
    x, y = drawn(n, d_a, 1, mean=3.0), drawn(n, d_b, 2, mean=-1.0)
    y[:, :3] += x[:, :3]
    expected = dense_hsic(x, y) / (dense_hsic(x, x) * dense_hsic(y, y)) ** 0.5
    assert debiased_cka(x, y) == pytest.approx(expected, rel=1e-9)


def test_cka_of_states_with_themselves_turned_and_scaled_is_1():
    x = drawn(60, 16)
    turn = torch.linalg.qr(drawn(16, 16, 3))[0]
    assert debiased_cka(x, x) == pytest.approx(1)
    assert debiased_cka(x, 10 * x @ turn + 5) == pytest.approx(1, abs=1e-5)


def test_cka_of_independent_states_is_about_0_even_with_fewer_rows_than_columns():
    found = [debiased_cka(drawn(32, 512, n), drawn(32, 512, 100 + n)) for n in range(20)]
    assert abs(np.mean(found)) < 0.03 and np.std(found) < 0.1  # biased CKA gives 0.94 here


def test_cka_of_a_constant_is_nan():
    assert np.isnan(debiased_cka(torch.ones(10, 3), drawn(10, 4)))


@pytest.mark.parametrize(("d_a", "d_b"), [(8, 8), (5, 8), (8, 5)])
def test_the_rotation_is_scipys(d_a, d_b):
    x, y = drawn(200, d_a, 1), drawn(200, d_b, 2)
    y[:, :4] += 2 * x[:, :4]
    found = orthogonal_procrustes(x, y)
    one, other = (z.double().numpy() - z.double().numpy().mean(0) for z in (x, y))
    width = max(d_a, d_b)  # scipy's are square: zeros where the narrower has no coordinate
    padded = [np.pad(z, ((0, 0), (0, width - z.shape[1]))) for z in (one, other)]
    np.testing.assert_allclose(found.Q, scipy_procrustes(*padded)[0][:d_a, :d_b], atol=1e-9)


def test_a_rotation_is_found_and_scores_1_on_rows_it_has_not_seen():
    x = drawn(200, 8)
    turn = torch.linalg.qr(drawn(8, 8, 3))[0]
    y = x @ turn + 3
    found = orthogonal_procrustes(x[:150], y[:150])
    torch.testing.assert_close(found.Q, turn.double(), atol=1e-5, rtol=0)
    assert found.cosine(x[150:], y[150:]) == pytest.approx(1, abs=1e-5)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert abs(found.cosine(x[150:], y[150:][order])) < 0.3


def test_least_squares_is_sklearns_on_held_out_rows():
    x, y = drawn(150, 10, 1, mean=4.0), drawn(150, 7, 2, mean=-2.0)
    y[:, :5] += x[:, :5]
    model = LinearRegression().fit(x[:100], y[:100])
    expected = r2_score(y[100:], model.predict(x[100:]))
    fit = LinearFit(x[:100])
    assert fit.r2(y[:100], x[100:], y[100:]) == pytest.approx(expected, abs=1e-5)
    assert fit.rank == 10


def test_dependent_columns_get_the_minimum_norm_map():
    x = drawn(100, 6)
    twice = torch.cat([x, x], dim=1)
    y = drawn(100, 3, 5)
    fit, same = LinearFit(twice[:80]), LinearFit(x[:80])
    assert fit.rank == 6
    found = fit.r2(y[:80], twice[80:], y[80:])
    assert found == pytest.approx(same.r2(y[:80], x[80:], y[80:]), abs=1e-9)


def test_constant_coordinates_are_left_out_of_r2():
    x, y = drawn(100, 4, 1), drawn(100, 3, 2)
    y += x[:, :3]
    fit = LinearFit(x[:70])
    expected = fit.r2(y[:70], x[70:], y[70:])
    y = torch.cat([y, torch.full((100, 1), 7.0)], dim=1)
    assert fit.r2(y[:70], x[70:], y[70:]) == pytest.approx(expected)
    assert np.isnan(fit.r2(torch.ones(70, 1), x[70:], torch.ones(30, 1)))


def test_fits_that_would_be_perfect_for_any_rows_are_refused():
    x, y = drawn(20, 64, 1), drawn(20, 64, 2)
    with pytest.raises(EmbspaceError, match="64 wide fits any 20 rows"):
        orthogonal_procrustes(x, y)
    with pytest.raises(EmbspaceError, match="64 wide fits any 20 rows"):
        LinearFit(x)


def test_unpaired_and_too_few_rows_are_refused():
    with pytest.raises(EmbspaceError, match="same word"):
        debiased_cka(drawn(20, 4), drawn(21, 4))
    with pytest.raises(EmbspaceError, match="at least 4"):
        debiased_cka(drawn(3, 4), drawn(3, 4))


def test_all_rows_of_a_text_are_on_one_side():
    lines = torch.arange(40).repeat_interleave(torch.arange(40) % 5 + 1)
    fitted, held = split_by_text(lines, 0.25, 0)
    assert set(lines[fitted].tolist()).isdisjoint(lines[held].tolist())
    assert len(set(lines[held].tolist())) == 10
    assert len(fitted) + len(held) == len(lines)
    assert split_by_text(lines, 0.25, 0)[1].tolist() == held.tolist()
    with pytest.raises(EmbspaceError, match="more text"):
        split_by_text(torch.zeros(9), 0.25, 0)


def test_a_row_that_owns_the_spread_is_seen():
    x = drawn(1000, 8)
    assert largest_rows(x) < 3
    x[5] = 3000
    assert largest_rows(x) > 100
