"""Intervals over texts: against scipy, a plain loop, and how often they hold the truth."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, norm, t

from embspace.intervals import FEWEST, Bootstrap, spanned, wilson


def share(lines, hits):
    return Bootstrap(torch.as_tensor(lines)).share(torch.as_tensor(hits, dtype=torch.float64))


def mean(lines, values, **how):
    return Bootstrap(torch.as_tensor(lines), **how).mean(torch.as_tensor(values))


def plain(lines: np.ndarray, values: np.ndarray, draws: int) -> tuple[float, float]:
    """Texts drawn with replacement, their rows put together, the mean taken; expanded ends."""
    random, texts = np.random.default_rng(1), np.unique(lines)
    means = [
        np.concatenate([values[lines == t] for t in random.choice(texts, len(texts))]).mean()
        for _ in range(draws)
    ]
    n = len(texts)
    rest = norm.cdf(-t.ppf(0.975, n - 1) * (n / (n - 1)) ** 0.5)
    low, high = np.quantile(means, [rest, 1 - rest])
    return float(low), float(high)


@pytest.mark.parametrize("per_text", [1, 5])
def test_intervals_of_means_are_those_of_a_plain_loop_over_texts(per_text):
    random = np.random.default_rng(0)
    lines = np.repeat(np.arange(60) * 3 + 7, per_text)
    shared = np.repeat(random.normal(size=60), per_text)
    values = shared + 0.2 * random.normal(size=len(lines))
    true = plain(lines, values, 4000)
    width = true[1] - true[0]
    assert mean(lines, values, n_draws=4000) == pytest.approx(true, abs=0.08 * width)


def test_texts_of_unequal_length_weigh_by_their_rows():
    lines = np.repeat(np.arange(40), np.arange(40) % 7 + 1)
    values = np.random.default_rng(0).normal(size=len(lines)) + lines % 7
    true = plain(lines, values, 4000)
    width = true[1] - true[0]
    assert mean(lines, values, n_draws=4000) == pytest.approx(true, abs=0.08 * width)


def test_rows_of_one_text_are_no_independent_draws():
    """Each row ten times over narrows nothing."""
    values = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lines = torch.arange(50)
    often = mean(lines.repeat_interleave(10), values.repeat_interleave(10))
    assert often == pytest.approx(mean(lines, values))
    hits = values > 0.3
    many = share(lines.repeat_interleave(10), hits.repeat_interleave(10))
    assert many == pytest.approx(share(lines, hits), abs=0.01)


def test_the_order_of_rows_is_of_no_matter_and_the_seed_decides():
    lines, values = torch.arange(30), torch.randn(30)
    order = torch.randperm(30)
    assert mean(lines, values) == pytest.approx(mean(lines[order], values[order]))
    assert mean(lines, values, seed=1) != mean(lines, values)


@pytest.mark.parametrize(("hits", "n"), [(0, 6), (6, 6), (0, 400), (3, 40), (1, 1)])
def test_the_share_of_single_rows_has_wilsons_ends(hits, n):
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    found = share(torch.arange(n), [1.0] * hits + [0.0] * (n - hits))
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert found[1] - found[0] > 0


def test_rows_that_are_all_right_in_few_texts_count_as_so_many_texts():
    """60 rows of 3 texts, all alike, say nothing of how texts differ."""
    lines = torch.arange(3).repeat_interleave(20)
    assert share(lines, torch.ones(60)) == pytest.approx(wilson(1.0, 3))
    assert share(torch.zeros(8), [0.0, 1] * 4) == pytest.approx(wilson(0.5, 1))


def test_means_of_few_texts_and_of_values_that_are_all_alike_have_no_interval():
    for n in range(1, FEWEST):
        assert mean(torch.arange(n).repeat_interleave(9), torch.randn(9 * n)) is None
    assert mean(torch.arange(FEWEST), torch.randn(FEWEST)) is not None
    assert mean(torch.arange(9), torch.full((9,), 0.25)) is None
    assert mean(torch.arange(9), torch.tensor([torch.inf] * 2 + [0.0] * 7)) is None
    assert spanned(torch.full((100,), torch.nan), 50) is None


@pytest.mark.parametrize("k", [5, 30])
@pytest.mark.parametrize("within", [0.1, 0.7])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_shares_of_texts_with_something_in_common_are_held(k, within, p):
    """Shares drawn text by text from a beta law: the truth lies inside about as often as said."""
    random, held, n = np.random.default_rng(0), 0, 200
    a = (1 - within) / within
    for _ in range(n):
        sizes = random.integers(1, 20, k)
        own = random.beta(p * a, (1 - p) * a, k)
        hits = np.concatenate([random.random(m) < q for m, q in zip(sizes, own, strict=True)])
        low, high = share(np.repeat(np.arange(k), sizes), hits)
        held += low <= p <= high
    assert held / n > 0.88


def test_means_of_five_texts_are_held_about_as_often_as_said():
    random, held, n = np.random.default_rng(0), 0, 300
    for _ in range(n):
        low, high = mean(np.arange(5), random.normal(size=5))
        held += low <= 0 <= high
    assert held / n > 0.88  # plain percentiles: 0.82
