"""Bootstrap intervals over texts against a plain loop."""

import numpy as np
import pytest
import torch

from embspace.mapping.intervals import Bootstrap


def plain(lines: np.ndarray, values: np.ndarray, draws: int) -> tuple[float, float]:
    """Texts drawn with replacement, their rows put together, the mean taken."""
    random, texts = np.random.default_rng(1), np.unique(lines)
    means = [
        np.concatenate([values[lines == t] for t in random.choice(texts, len(texts))]).mean()
        for _ in range(draws)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@pytest.mark.parametrize("per_text", [1, 5])
def test_intervals_are_those_of_a_plain_loop_over_texts(per_text):
    random = np.random.default_rng(0)
    lines = np.repeat(np.arange(60) * 3 + 7, per_text)
    shared = np.repeat(random.normal(size=60), per_text)
    values = shared + 0.2 * random.normal(size=len(lines))
    bootstrap = Bootstrap(torch.from_numpy(lines), n_draws=4000)
    ours = bootstrap.interval(torch.from_numpy(values))
    true = plain(lines, values, 4000)
    width = true[1] - true[0]
    assert ours == pytest.approx(true, abs=0.08 * width)


def test_texts_of_unequal_length_weigh_by_their_rows():
    lines = np.repeat(np.arange(40), np.arange(40) % 7 + 1)
    values = np.random.default_rng(0).normal(size=len(lines)) + lines % 7
    ours = Bootstrap(torch.from_numpy(lines), n_draws=4000).interval(torch.from_numpy(values))
    true = plain(lines, values, 4000)
    assert ours == pytest.approx(true, abs=0.08 * (true[1] - true[0]))


def test_rows_of_one_text_are_no_independent_draws():
    """Each row ten times over narrows nothing."""
    values = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    once = Bootstrap(torch.arange(50)).interval(values)
    often = Bootstrap(torch.arange(50).repeat_interleave(10)).interval(values.repeat_interleave(10))
    assert often == pytest.approx(once)


def test_the_order_of_rows_is_of_no_matter_and_the_seed_decides():
    lines, values = torch.arange(30), torch.randn(30)
    order = torch.randperm(30)
    assert Bootstrap(lines).interval(values) == pytest.approx(
        Bootstrap(lines[order]).interval(values[order])
    )
    assert Bootstrap(lines, seed=1).interval(values) != Bootstrap(lines).interval(values)


def test_values_that_are_all_alike_have_no_width():
    assert Bootstrap(torch.arange(9)).interval(torch.full((9,), 0.25)) == (0.25, 0.25)
    assert Bootstrap(torch.zeros(4, dtype=torch.long)).interval(torch.tensor([0.0, 1, 0, 1])) == (
        0.5,
        0.5,
    )
