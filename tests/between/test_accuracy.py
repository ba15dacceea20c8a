"""Accuracies and their Wilson intervals against scipy's."""

import pytest
from scipy.stats import binomtest

from embspace.between.accuracy import Accuracy, accuracy, chance, wilson
from embspace.errors import EmbspaceError


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 40), (40, 40), (13, 40), (700, 1000)])
def test_the_interval_is_wilsons(right, n):
    expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert wilson(right, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_right_ones_are_counted_and_the_share_lies_in_its_interval():
    found = accuracy([0, 1, 1, 0], [0, 1, 0, 0])
    low, high = found.interval
    assert (found.right, found.n, found.share) == (3, 4, 0.75) and low < 0.75 < high
    assert found.to_dict()["low"] == low


def test_chance_is_the_most_frequent_label():
    assert chance([0, 0, 1, 2, 0]) == 0.6


def test_nothing_to_count_is_refused():
    with pytest.raises(EmbspaceError, match="at least one"):
        _ = Accuracy(0, 0).interval
