"""Maps and r² from sums against scikit-learn on the rows themselves, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score

from embspace.errors import EmbspaceError
from embspace.maps.assemble import RIDGES, chosen_ridge
from embspace.maps.solve import Solution, r2_of, r2_of_identity, solve
from embspace.maps.sums import Plan, Sums


def predicted(solution: Solution, x: np.ndarray, k: int = 0) -> np.ndarray:
    d = x.shape[1]
    columns = slice(k * d, (k + 1) * d)
    b = 0 if solution.b is None else solution.b[columns].numpy()
    return x @ solution.A[:, columns].numpy() + b


def off(ours: np.ndarray, true: np.ndarray) -> float:
    return float(np.abs(ours - true).max() / np.abs(true).max())


def sums_of(x: np.ndarray, y: np.ndarray, **options) -> Sums:
    sums = Sums(Plan.of_layers(1), x.shape[1], **options)
    sums.add({"0": torch.from_numpy(x), "1": torch.from_numpy(y)})
    return sums


@pytest.mark.parametrize("kind", ["mat", "affine"])
@pytest.mark.parametrize("mean", [0.0, 50.0])
def test_every_pair_predicts_and_scores_as_linear_regression_does(chain, summed, kind, mean):
    train, test = chain(300, 24, 3, mean=mean), chain(120, 24, 3, seed=1, mean=mean)
    sums, held = summed(train), summed(test)
    for l in range(3):
        solution = solve(sums, str(l), kind=kind)
        scores, identity = r2_of(held, str(l), solution), r2_of_identity(held, str(l))
        assert (solution.rank, solution.cut) == (24, None)
        for k, l2 in enumerate(range(l + 1, 4)):
            theirs = LinearRegression(fit_intercept=kind == "affine").fit(train[l], train[l2])
            wanted = theirs.predict(test[l])
            assert off(predicted(solution, test[l], k), wanted) < 1e-6
            assert scores[str(l2)].mean == pytest.approx(r2_score(test[l2], wanted), abs=1e-6)
            assert identity[str(l2)].mean == pytest.approx(r2_score(test[l2], test[l]), rel=1e-9)
            each = r2_score(test[l2], wanted, multioutput="raw_values")
            assert scores[str(l2)].median == pytest.approx(float(np.sort(each)[11]), abs=1e-6)
            assert scores[str(l2)].least == pytest.approx(float(each.min()), abs=1e-6)


@pytest.mark.parametrize("strength", [1e-6, 1e-2, 1.0])
def test_ridge_predicts_as_sklearns_with_its_strength_per_row(chain, summed, strength):
    train, test = chain(200, 16, 1), chain(80, 16, 1, seed=1)
    solution = solve(summed(train), "0", kind="ridge", ridge=strength)
    alpha = strength * float((train[0] ** 2).sum(0).mean())
    theirs = Ridge(alpha=alpha, fit_intercept=False).fit(train[0], train[1])
    assert off(predicted(solution, test[0]), theirs.predict(test[0])) < 1e-6


def test_the_ridge_chosen_is_the_one_that_scores_best_on_rows_of_its_own(chain, summed):
    """Fewer rows than coordinates: no penalty at all fits the noise."""
    train, choice = chain(30, 40, 1, noise=1.0), chain(200, 40, 1, seed=1, noise=1.0)

    def score(strength: float) -> float:
        if strength == 0:
            A = np.linalg.lstsq(train[0], train[1], rcond=None)[0]
        else:
            alpha = strength * float((train[0] ** 2).sum(0).mean())
            A = Ridge(alpha=alpha, fit_intercept=False).fit(train[0], train[1]).coef_.T
        return float(r2_score(choice[1], choice[0] @ A))

    assert chosen_ridge(summed(train), summed(choice), "0") == max(RIDGES, key=score)


def test_float32_products_score_as_float64_ones_to_1e_4(chain, summed):
    train, test = chain(3000, 24, 2, mean=3.0), chain(1000, 24, 2, seed=1, mean=3.0)
    exact, fast = summed(train), summed(train, products="float32")
    held, held_fast = summed(test), summed(test, products="float32")
    for l in range(2):
        true = r2_of(held, str(l), solve(exact, str(l)))
        ours = r2_of(held_fast, str(l), solve(fast, str(l)))
        for target, one in true.items():
            assert ours[target].mean == pytest.approx(one.mean, abs=1e-4)


@pytest.mark.parametrize("products", ["float64", "float32"])
def test_doubled_columns_give_half_the_rank_and_equal_halves(products):
    """X = [A, A]: of all solutions the one of least norm."""
    random = np.random.default_rng(0)
    half, y = random.normal(size=(200, 32)), random.normal(size=(200, 64))
    x = np.concatenate([half, half], 1)
    solution = solve(sums_of(x, y, products=products), "0")
    assert solution.rank == 32
    assert solution.cut is not None
    A = solution.A.numpy()
    tolerance = 1e-8 if products == "float64" else 1e-3
    assert np.allclose(A[:32], A[32:], atol=tolerance)
    assert np.allclose(A, np.linalg.pinv(x) @ y, atol=tolerance)
    again = solve(sums_of(x, y, products=products), "0")
    assert torch.equal(again.A, solution.A)


@pytest.mark.parametrize("apart", [1e-7, 1e-9, 1e-11])
def test_columns_that_are_nearly_doubled_are_no_reason_for_huge_maps(apart):
    """Moments square the condition: Cholesky may still pass where its solution is rounding."""
    random = np.random.default_rng(0)
    half, y = random.normal(size=(300, 16)), random.normal(size=(300, 32))
    x = np.concatenate([half, half + apart * random.normal(size=half.shape)], 1)
    solution = solve(sums_of(x, y), "0")
    assert solution.rank == 16 and solution.cut is not None
    assert np.allclose(solution.A.numpy(), np.linalg.pinv(x, rcond=1e-5) @ y, atol=1e-5)


def test_fewer_rows_than_coordinates_give_the_least_norm_fit_and_a_bad_held_out_score():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 64)), random.normal(size=(40, 64))
    x2, y2 = random.normal(size=(500, 64)), random.normal(size=(500, 64))
    sums = sums_of(x, y)
    solution = solve(sums, "0")
    assert solution.rank == 40
    assert np.allclose(solution.A.numpy(), np.linalg.pinv(x) @ y, atol=1e-8)
    assert r2_of(sums, "0", solution)["1"].mean == pytest.approx(1.0, abs=1e-9)
    held = r2_of(sums_of(x2, y2), "0", solution)["1"].mean
    assert held == pytest.approx(r2_score(y2, x2 @ np.linalg.pinv(x) @ y), abs=1e-6)
    assert held < -0.5


def test_affine_with_as_many_rows_as_coordinates_counts_the_mean_as_one():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(10, 10)) + 5, random.normal(size=(10, 10))
    solution = solve(sums_of(x, y), "0", kind="affine")
    assert solution.rank == 9
    assert off(predicted(solution, x), y) < 1e-6


def test_constant_target_columns_are_left_out_and_counted():
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 3))
    y = x @ random.normal(size=(3, 3)) + 0.1 * random.normal(size=(400, 3))
    y[:, 1] = 7.0
    sums = sums_of(x, y)
    score = r2_of(sums, "0", solve(sums, "0", kind="affine"))["1"]
    wanted = LinearRegression().fit(x, y[:, [0, 2]]).score(x, y[:, [0, 2]])
    assert score.n_constant == 1
    assert score.mean == pytest.approx(wanted, abs=1e-9)


def test_when_no_column_varies_there_is_no_score():
    sums = sums_of(np.ones((9, 3)), np.zeros((9, 3)))
    score = r2_of(sums, "0", solve(sums, "0"))["1"]
    assert np.isnan(score.mean)
    assert score.n_constant == 3


def test_a_few_outlying_rows_carry_the_pooled_score_but_not_the_mean():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2000, 32)), random.normal(size=(2000, 32))
    x[::20, 0] += 3000
    y[::20, 0] += 3000
    sums = sums_of(x, y)
    score = r2_of(sums, "0", solve(sums, "0"))["1"]
    assert score.pooled > 0.999
    assert score.mean < 0.1
    assert score.median < 0.05


@pytest.mark.parametrize("products", ["float64", "float32"])
def test_a_mean_of_a_thousand_leaves_the_map_right(products):
    """Float32 moments about 0 would be off by more than the noise."""
    random = np.random.default_rng(0)
    x = (random.normal(size=(5000, 16)) + 1000).astype("float32")
    y = (x.astype(float) @ random.normal(size=(16, 16)) + random.normal(size=(5000, 16))).astype(
        "float32"
    )
    solution = solve(sums_of(x, y, products=products), "0")
    true = np.linalg.lstsq(x.astype(float), y.astype(float), rcond=None)[0]
    tolerance = 1e-6 if products == "float64" else 1e-4
    assert off(x.astype(float) @ solution.A.numpy(), x.astype(float) @ true) < tolerance
    affine = solve(sums_of(x, y, products=products), "0", kind="affine")
    wanted = LinearRegression().fit(x.astype(float), y.astype(float)).predict(x.astype(float))
    assert off(predicted(affine, x.astype(float)), wanted) < tolerance


def test_zeros_give_a_map_of_zeros_and_rank_0():
    solution = solve(sums_of(np.zeros((50, 4)), np.ones((50, 4))), "0")
    assert solution.rank == 0
    assert not solution.A.any()


def test_no_row_gives_an_error():
    with pytest.raises(EmbspaceError, match="no row was seen"):
        solve(Sums(Plan.of_layers(1), 4), "0")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 60),
    d=st.integers(1, 12),
    scales=st.lists(st.integers(-8, 8), min_size=12, max_size=12),
    scale=st.integers(-8, 8),
)
def test_predictions_hold_whatever_the_scales_of_the_coordinates(seed, n, d, scales, scale):
    """Each coordinate of x between 1e-8 and 1e8, y likewise: lstsq on columns of equal length."""
    random = np.random.default_rng(seed)
    size = 10.0 ** np.array(scales[:d])
    x = random.normal(size=(n, d)) * size
    y = random.normal(size=(n, d)) * 10.0**scale
    if n < 2 * d:  # then the least norm depends on the scales; determined fits do not
        x, y = np.tile(x, (2, 1)), np.tile(y, (2, 1))
        x[len(x) // 2 :] += random.normal(size=(len(x) // 2, d)) * size
    solution = solve(sums_of(x, y), "0")
    if solution.rank < d:
        return
    length = np.linalg.norm(x, axis=0)
    scaled = x / length
    if np.linalg.cond(scaled) > 1e4:
        return
    wanted = scaled @ np.linalg.lstsq(scaled, y, rcond=None)[0]
    assert off(predicted(solution, x), wanted) < 1e-6


def test_a_coordinate_of_rounding_only_is_no_target():
    rows = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    target = rows.flip(1).clone()
    target[:, 1] = rows[:, 0] * 1e-30
    sums = Sums(Plan.of_layers(1, "all"), 3)
    sums.add({"0": rows, "1": target})
    found = r2_of_identity(sums, "0")["1"]
    assert found.n_constant == 1 and found.mean > -10


@pytest.mark.parametrize("d", [24, 300], ids=["all eigenvalues", "the outer two"])
@pytest.mark.parametrize("cut", [0, 5])
def test_the_condition_is_that_of_the_rows_not_of_their_moments(d: int, cut: int):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(3 * d, d)) @ np.diag(np.geomspace(1, 1e3, d)) @ rng.normal(size=(d, d))
    if cut:  # a few coordinates are sums of others
        X[:, :cut] = X[:, cut : 2 * cut] + X[:, 2 * cut : 3 * cut]
    sums = Sums(Plan.of_layers(1), d)
    sums.add({"0": torch.tensor(X), "1": torch.tensor(X)})
    sizes = np.linalg.svd(X / np.linalg.norm(X, axis=0), compute_uv=False)
    found = solve(sums, "0")
    assert found.rank == d - cut
    assert found.condition == pytest.approx(sizes[0] / sizes[d - cut - 1], rel=1e-3)
