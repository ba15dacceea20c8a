"""Intervals against scipy, and against simulation where values come in texts."""

import numpy as np
import pytest
import torch
from scipy import stats

from embspace.estimate import estimate, estimate_by_text


def test_the_interval_is_students():
    values = torch.randn(13, generator=torch.Generator().manual_seed(0))
    low, high = stats.t.interval(
        0.95, 12, loc=values.double().mean(), scale=stats.sem(values.double().numpy())
    )
    found = estimate(values)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.n == 13


def test_one_value_has_no_interval():
    found = estimate(torch.tensor([0.5]))
    assert (found.mean, found.low, found.high) == (0.5, None, None)


def test_texts_of_one_value_each_give_the_plain_interval():
    values = torch.rand(40, generator=torch.Generator().manual_seed(1))
    plain, by_text = estimate(values), estimate_by_text(values, torch.arange(40) + 7)
    assert (by_text.low, by_text.high) == pytest.approx((plain.low, plain.high))


def test_the_interval_by_text_covers_where_the_plain_one_does_not():
    random = np.random.default_rng(0)
    texts = torch.arange(30).repeat_interleave(10)
    covered = {"text": 0, "plain": 0}
    for _ in range(300):
        shift = np.repeat(random.normal(size=30), 10)
        values = torch.tensor(shift + 0.3 * random.normal(size=300))
        for name, found in (
            ("text", estimate_by_text(values, texts)),
            ("plain", estimate(values)),
        ):
            assert found.low is not None and found.high is not None
            covered[name] += found.low <= 0 <= found.high
    assert 0.91 <= covered["text"] / 300 <= 0.985
    assert covered["plain"] / 300 < 0.7
