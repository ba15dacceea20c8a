"""Early exit leads with its answer: what is saved where both lenses keep the same."""

from dataclasses import replace

import pytest

from embspace.shorten.exit_result import ExitChoice, ExitPoint, Exits
from embspace.show import as_text

SETTINGS = {"target": 0.95, "rows": 40, "rows_calibration": 20, "text": "t"}
SETTINGS |= {"mean_length": 5.0, "check_cost": 0.5}


def choice(name: str, rule: str, saved: float, at_target: float) -> ExitChoice:
    precision = dict.fromkeys((1, 5, 10), 0.9)
    point = ExitPoint(
        name, rule, 3.0, 3.0, saved, (0.51, 0.52), -0.125, precision, (0.81, 0.93), (0, 0, 0, 40, 0)
    )
    return ExitChoice((2.0, 4.0), 0.95, point, at_target, (0.11, 0.31))


@pytest.fixture
def result() -> Exits:
    """The fixed exit saves most where it keeps less than the target; at the target it does not."""
    choices = (choice("mat", "fixed", 0.6, 0.1), choice("mat", "confidence", 0.4, 0.2))
    points = tuple(one.point for one in choices)
    return Exits(4, points, choices, (), points, SETTINGS, provenance={"model": "m"})


def test_the_line_below_the_title_names_the_saving_at_equal_retention(result):
    title, lead, *_ = as_text(result, 400).split("\n")
    assert title.startswith("m · leaving early")
    assert lead.startswith(
        "mat, confidence exit: 20.0% of the blocks saved (11.0% … 31.0%) where 95% of the answers "
        "stay."
    )
    assert "40.0% saved, 90.0% kept" in lead and "-12.5%" in lead and "60.0%" not in lead


def test_where_nothing_is_saved_at_the_target_the_line_says_so(result):
    nothing = tuple(replace(one, saved_at_target=0.0) for one in result.choices)
    lead = as_text(replace(result, choices=nothing), 400).split("\n")[1]
    assert lead == "Leaving early saves nothing where 95% of the answers are to stay."


def test_eighty_columns_hold_what_is_saved_at_the_target_and_kept_with_their_intervals(result):
    text = as_text(result, 80)
    (row,) = (line for line in text.split("\n") if line.startswith("mat confidence"))
    for shown in ("20.0%", "11.0% … 31.0%", "90.0%", "81.0% … 93.0%"):
        assert shown in row
    assert "in a wider terminal: saved, Prec@10, net" in text
