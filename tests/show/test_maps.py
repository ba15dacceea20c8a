"""Fitted maps as a table: r² of most, KL of those that were refined."""

import pytest

from embspace.maps.maps import Maps, PairFit
from embspace.show.report import report

ABOUT = {"model": "m", "n_layers": 2, "d": 4, "rows": 50, "kind": "mat", "text": "t"}


def maps(**about) -> Maps:
    pairs = tuple(PairFit(str(l), "2", 0.5, 0.5, 0.5, 0.1, 0, 4, 10.0, None) for l in range(2))
    return Maps(ABOUT | about, pairs, {})


def test_least_squares_maps_show_r2_beside_the_identity():
    headers = [column.header for column in report(maps()).tables[0].columns]
    assert headers[:3] == ["layers", "r²", "r² of id"]


def test_coordinates_that_do_not_vary_are_said_to_be_left_out():
    pairs = tuple(PairFit(str(l), "2", 0.5, 0.5, 0.5, 0.1, l, 4, 10.0, None) for l in range(2))
    said = "Up to 1 constant coordinates are left out of r²."
    assert said in report(Maps(ABOUT, pairs, {})).notes
    assert said not in report(maps()).notes


def test_refined_maps_show_what_was_lowered_and_that_it_is_no_held_out_score():
    found = report(
        maps(
            kind="refined",
            refined_from="affine",
            refined={"rows_apart": 7},
            kl={"0": [2.0, 1.5], "1": [1.0, 1.0]},
        )
    )
    (table,) = found.tables
    assert [column.header for column in table.columns] == ["layers", "KL of affine", "KL refined"]
    assert table.rows == (("0 → 2", 2.0, 1.5), ("1 → 2", 1.0, 1.0))
    assert "7 rows" in found.about and any("embspace score" in note for note in found.notes)


@pytest.mark.parametrize("kl", [None, 3, {"0": None}, {"0": [1.0]}, {"0": ["a", {}]}])
def test_a_record_of_any_shape_is_shown(kl):
    assert report(maps(kind="refined", refined="x", kl=kl)).tables[0].rows[0] == (
        "0 → 2",
        None,
        None,
    )
