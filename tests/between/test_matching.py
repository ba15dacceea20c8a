"""Matches, distances from the diagonal, and p-values against counting by hand."""

import itertools

import numpy as np
import pytest
import torch

from embspace.between import matching
from embspace.between.matching import chance, distances, match_layers


def test_the_match_has_the_largest_sum_of_all_one_to_one_matches():
    generator = np.random.default_rng(0)
    for _ in range(20):
        score = generator.random((4, 5))
        found = match_layers(torch.tensor(score))
        sums = {
            order: score[np.arange(4), order].sum() for order in itertools.permutations(range(5), 4)
        }
        assert found.match == max(sums, key=sums.__getitem__)


def test_a_dead_row_is_left_unmatched():
    score = torch.rand(4, 6, dtype=torch.float64)
    score[2] = torch.nan
    found = match_layers(score)
    assert found.match[2] is None and len(found.pairs) == 3
    rest = match_layers(score[[0, 1, 3]])
    assert [found.match[n] for n in (0, 1, 3)] == list(rest.match)


def test_equal_depths_are_apart_by_their_layer_numbers():
    assert distances(4, 4).tolist() == [[abs(i - j) for j in range(4)] for i in range(4)]


def test_different_depths_are_apart_by_relative_position():
    home = distances(4, 7).argmin(axis=1)
    assert home.tolist() == [0, 2, 4, 6]
    assert (distances(7, 4) == distances(4, 7).T).all()
    for n in range(1, 20):
        for m in range(n, 30):
            homes = distances(n, m).argmin(axis=1)
            assert len(set(homes.tolist())) == n  # a full diagonal can be reached


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 3), (5, 5), (3, 6)])
def test_p_is_the_share_of_matches_that_lie_as_close(n, m):
    apart = distances(n, m)
    every = [apart[np.arange(n), order].mean() for order in itertools.permutations(range(m), n)]
    for observed in set(every):
        expected = np.mean([x <= observed + 1e-9 for x in every])
        assert chance(apart, observed, 0) == pytest.approx(expected)
        assert chance(apart.T, observed, 0) == pytest.approx(expected)


def test_drawn_matches_give_about_the_same_p(monkeypatch):
    apart = distances(7, 7)
    exact = chance(apart, 1.2, 0)
    monkeypatch.setattr(matching, "EXACT", 10)
    drawn = chance(apart, 1.2, 0)
    assert drawn == pytest.approx(exact, abs=4 * (exact / matching.DRAWN) ** 0.5)
    assert drawn == chance(apart, 1.2, 0)


def test_a_perfect_diagonal_of_twelve_layers_has_the_smallest_p_there_is():
    found = match_layers(torch.eye(12))
    assert found.diagonal == 1.0 and found.n_diagonal == 12
    assert found.p == 1 / (matching.DRAWN + 1)


def test_a_reversed_match_is_no_closer_than_chance():
    assert match_layers(torch.eye(6).flip(0)).p == 1.0


def test_one_layer_has_no_order_to_get_right():
    assert match_layers(torch.ones(1, 1)).p == 1.0


def test_scores_that_say_nothing_have_no_p():
    for score in (torch.ones(6, 6), torch.ones(12, 12), torch.rand(6, 1).expand(6, 9)):
        found = match_layers(score + 1e-9 * torch.rand(score.shape))
        assert (found.p, found.diagonal, found.distance) == (None, None, None)
        assert len(found.pairs) == 6 or len(found.pairs) == 12
        assert found.equally_good > 1 and not found.unique


def test_p_is_the_mean_over_equally_good_matches():
    score = torch.eye(5).double()
    score[3:, 3:] = 1.0  # layers 3 and 4 are alike: two matches are equally good
    found = match_layers(score + 1e-9 * torch.rand(5, 5))
    apart = distances(5, 5)
    assert found.equally_good == 2
    assert found.p == pytest.approx((chance(apart, 0.0, 0) + chance(apart, 2 / 5, 0)) / 2)
    assert found.diagonal == pytest.approx((1 + 3 / 5) / 2)
    assert found.distance == pytest.approx(1 / 5)


@pytest.mark.parametrize("shape", [(12, 12), (12, 14), (14, 12)])
def test_ties_of_many_layers_are_broken_at_random(shape):
    score = torch.zeros(shape).double()
    score[:6, :6], score[6:, 6:] = 1.0, torch.eye(12)[: shape[0] - 6, : shape[1] - 6]
    found = match_layers(score)
    assert found.equally_good > 100 and found.p is not None
    apart = distances(*shape)
    wanted = np.mean([apart[i, j] for i in range(6) for j in range(6)])
    drawn = found.distance * len(found.pairs)
    rest = sum(apart[i, j] for i, j in found.pairs if i >= 6)
    assert drawn == pytest.approx(6 * wanted + rest, rel=0.1)
    assert found == match_layers(score)


def test_different_scores_leave_one_match():
    found = match_layers(torch.rand(12, 12, generator=torch.Generator().manual_seed(0)))
    assert found.unique and found.p is not None
