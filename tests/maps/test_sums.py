"""Sums against products of the rows themselves; in any pieces, merged, copied, put on disk."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embspace.errors import EmbspaceError, MapsError
from embspace.maps.checkpointing import load_state, save_state
from embspace.maps.solve import r2_of, solve
from embspace.maps.sums import CHUNK, Plan, Sums


def same(a: Sums, b: Sums, tolerance: float = 1e-12) -> None:
    """Equal moments of every source, means and variations."""
    assert a.n == b.n
    for source, targets in a.plan.targets.items():
        for centred in (False, True):
            x, y = (s.moments(source, targets, centred=centred) for s in (a, b))
            assert float((x - y).abs().max()) <= tolerance * float(y.abs().max())
    for space in a.plan.spaces:
        for name in ("mean", "energy", "variation"):
            torch.testing.assert_close(
                getattr(a, name)(space), getattr(b, name)(space), rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize("products", ["float64", "float32"])
def test_moments_are_the_products_of_the_rows(chain, summed, products):
    states = chain(500, 7, 3, mean=4.0)
    sums = summed(states, products=products)
    rtol = 1e-12 if products == "float64" else 1e-6
    for l in range(3):
        right = np.concatenate(states[l:], 1)
        true = states[l].T @ right
        ours = sums.moments(str(l), sums.plan.targets[str(l)]).numpy()
        assert np.abs(ours - true).max() <= rtol * np.abs(true).max()
        x, y = states[l] - states[l].mean(0), right - right.mean(0)
        centred = sums.moments(str(l), sums.plan.targets[str(l)], centred=True).numpy()
        assert np.abs(centred - x.T @ y).max() <= max(rtol, 1e-10) * np.abs(x.T @ y).max()
    for l, x in enumerate(states):
        assert np.allclose(sums.mean(str(l)), x.mean(0), rtol=1e-12)
        assert np.allclose(sums.energy(str(l)), (x * x).sum(0), rtol=1e-12)
        assert np.allclose(sums.variation(str(l)), x.var(0) * len(x), rtol=1e-9)


def test_only_some_targets_of_a_source_can_be_asked_for(chain, summed):
    sums = summed(chain(50, 5, 3))
    every, some = sums.moments("0", ("1", "2", "3")), sums.moments("0", ("3", "1"))
    assert torch.equal(some, torch.cat([every[:, :5], every[:, 15:], every[:, 5:10]], 1))


@settings(max_examples=20, deadline=None)
@given(pieces=st.integers(1, 1500), products=st.sampled_from(["float64", "float32"]))
def test_rows_in_any_pieces_give_the_same_sums(chain, summed, pieces, products):
    states = chain(1300, 4, 2, mean=2.0)
    tolerance = 1e-12 if products == "float64" else 2e-6
    same(summed(states, pieces, products=products), summed(states), tolerance)


def test_rows_in_another_order_give_the_same_sums(chain, summed):
    states = chain(300, 4, 2)
    same(summed([x[::-1] for x in states]), summed(states))


@pytest.mark.parametrize("products", ["float64", "float32"])
def test_merged_parts_are_the_whole(chain, summed, products):
    states = chain(700, 5, 2, mean=3.0)
    one, other = (
        summed([x[part] for x in states], products=products)
        for part in (slice(0, 200), slice(200, 700))
    )
    before = other.copy()
    one.merge(other)
    same(one, summed(states), 1e-12 if products == "float64" else 2e-6)
    same(other, before, 0.0)
    empty = Sums(one.plan, 5, products=products)
    empty.merge(one)
    same(empty, one)


def test_unshifting_changes_no_moment(chain, summed):
    sums = summed(chain(200, 5, 2, mean=10.0), products="float32")
    before = sums.copy()
    sums.unshift()
    assert not sums.shift.any()
    same(sums, before, 1e-12)


def test_a_copy_is_independent(chain, summed):
    states = chain(60, 3, 2)
    sums = summed(states)
    twin = sums.copy()
    twin.add({str(l): torch.from_numpy(x) for l, x in enumerate(states)})
    same(sums, summed(states), 0.0)
    assert twin.n == 120


def test_sums_of_other_maps_are_not_added(chain, summed):
    with pytest.raises(MapsError, match="other maps"):
        summed(chain(20, 4, 2)).merge(summed(chain(20, 4, 2), pairs="final"))


@pytest.mark.parametrize("products", ["float64", "float32"])
def test_a_state_on_disk_comes_back_to_the_bit(chain, summed, products, tmp_path):
    sums = summed(chain(60, 4, 2, mean=1.0), products=products)
    save_state(tmp_path / "s", {"fit": sums}, {"fit": 3}, "this fit", [(5, 0.25)])
    found = Sums(sums.plan, 4, products=products)
    assert load_state(tmp_path / "s", {"fit": found}, "this fit") == ({"fit": 3}, [(5, 0.25)])
    assert found.n == sums.n
    for name, tensor in sums.tensors().items():
        assert torch.equal(found.tensors()[name], tensor)
    with pytest.raises(MapsError, match="another fit"):
        load_state(tmp_path / "s", {"fit": found}, "that fit")
    other = Sums(Plan.of_layers(2), 4)
    with pytest.raises(MapsError):
        load_state(tmp_path / "s", {"fit": other}, "this fit")


def test_a_damaged_state_is_refused_in_one_sentence(chain, summed, tmp_path):
    sums = summed(chain(60, 4, 2))
    save_state(tmp_path / "s", {"fit": sums}, {"fit": 3}, "x")
    whole = (tmp_path / "s").read_bytes()
    for n, content in enumerate(
        (b"", whole[:50], whole[:-9], b"[]" * 99, whole.replace(b"3}", b"[}"))
    ):
        path = tmp_path / f"bad{n}"
        path.write_bytes(content)
        with pytest.raises(MapsError):
            load_state(path, {"fit": Sums(sums.plan, 4)}, "x")
    with pytest.raises(MapsError):
        load_state(tmp_path / "none", {"fit": Sums(sums.plan, 4)}, "x")


def test_a_chosen_list_of_pairs_is_summed_and_solved_like_all(chain, summed):
    states = chain(90, 4, 4)
    some, every = summed(states, pairs=[(0, 3), (0, 1), (2, 4)]), summed(states)
    assert some.plan.pairs == [("0", "1"), ("0", "3"), ("2", "4")]
    for source, targets in some.plan.targets.items():
        mine, theirs = solve(some, source), solve(every, source, targets)
        torch.testing.assert_close(mine.A, theirs.A)


@pytest.mark.parametrize("pairs", [[(1, 1)], [(2, 1)], [(0, 9)], [(-1, 2)], [3], ["ab"], "most"])
def test_pairs_that_do_not_exist_are_refused(pairs):
    with pytest.raises(EmbspaceError):
        Plan.of_layers(4, pairs)


def nearly_dependent(n: int = 4000, d: int = 48) -> list[np.ndarray]:
    """x with a thousand times more along some directions than along others and a large common part;
    y, which needs all of them; in float32."""
    random = np.random.default_rng(0)
    spread = np.linalg.qr(random.normal(size=(d, d)))[0] * np.logspace(0, -3.5, d)
    z = random.normal(size=(n, d))
    x = z @ spread.T + 5.0
    y = z @ random.normal(size=(d, d)) + 0.5 * random.normal(size=(n, d))
    return [x.astype(np.float32), y.astype(np.float32)]


def held_out_r2(fit: Sums, held: Sums) -> float:
    return r2_of(held, "0", solve(fit, "0"))["1"].mean


@pytest.mark.parametrize("pieces", [37, 0])
@pytest.mark.parametrize("chunk", [CHUNK, 16])
def test_float32_products_keep_r2_where_coordinates_are_nearly_dependent(
    summed, pieces, chunk, monkeypatch
):
    monkeypatch.setattr("embspace.maps.sums.CHUNK", chunk)  # 16: fewer than coordinates
    monkeypatch.setattr("embspace.maps.sums.MOST_WAITING", 1)
    rows = nearly_dependent()
    fit, held = [a[:3000] for a in rows], [a[3000:] for a in rows]
    found = {}
    for products in ("float64", "float32"):
        sums = [summed(part, pieces, products=products) for part in (fit, held)]
        found[products] = held_out_r2(*sums)
        assert (sums[0].as_multiplied("0") is None) == (products == "float64")
    assert found["float64"] > 0.9
    assert abs(found["float32"] - found["float64"]) < 1e-4


def test_sums_that_are_read_from_the_first_row_on_lose_nothing_in_float32(summed):
    rows = nearly_dependent()
    fit, held = [a[:3000] for a in rows], [a[3000:] for a in rows]
    read = Sums(Plan.of_layers(1), 48, products="float32")
    for start in (0, *range(1, 3000, 60)):
        part = slice(start, start + 60 if start else 1)
        read.add({str(l): torch.from_numpy(x[part]) for l, x in enumerate(fit)})
        read.moments("0", ("1",))
    assert len(read.roots) == 1
    exact, held_sums = summed(fit), summed(held)
    assert read.n == exact.n == 3000
    same(read, exact, 5e-6)
    assert abs(held_out_r2(read, held_sums) - held_out_r2(exact, held_sums)) < 1e-4


def test_few_rows_are_multiplied_in_float64_whatever_is_asked_for(chain, summed):
    states = chain(15, 8, 2, mean=3.0)
    sums = summed(states, products="float32")
    same(sums, summed(states), 1e-12)
    assert sums.as_multiplied("0") is None
    assert solve(sums, "0").cut is None


def test_merged_sums_are_judged_by_the_part_that_was_rounded(summed):
    rows = nearly_dependent()
    few, many = [a[:20] for a in rows], [a[20:3000] for a in rows]
    held = summed([a[3000:] for a in rows])
    whole = summed(few, products="float32")
    whole.merge(summed(many, products="float32"))
    assert solve(whole, "0").rank == 48
    exact = held_out_r2(summed([a[:3000] for a in rows]), held)
    assert abs(held_out_r2(whole, held) - exact) < 1e-4
    assert abs(held_out_r2(whole.copy(), held) - exact) < 1e-4


def test_rows_wait_until_there_are_enough_of_them_and_count_at_once(chain, summed):
    states = chain(CHUNK + 300, 3, 1)
    sums = summed(states, 100)
    assert sums.n == CHUNK + 300
    assert len(sums.tensors()["waiting"]) == 300
    same(sums, summed(states))
    assert len(sums.tensors()["waiting"]) == 0
