"""Other libraries' errors become whole sentences that can stand inside ours."""

import pytest

from embspace.messages import first_line

TYPE = (
    "The checkpoint you are trying to load has model type `none` but Transformers does not "
    "recognize this architecture. This could be because of an issue with the checkpoint, or "
    "because your version of Transformers is out of date.\n\nYou can update it."
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("it is broken.", "it is broken"),
        ("first\nsecond", "first"),
        ("", "ValueError"),
        ("Validation error for field 'n':\n    expected int, got str", None),
        ("nothing after the colon:", "nothing after the colon"),
        (TYPE, TYPE.split(". ")[0]),
        ("word " * 60, "word " * 39 + "…"),
    ],
)
def test_the_first_line_is_whole(message: str, expected: str | None):
    found = first_line(ValueError(message))
    assert found == (expected or "Validation error for field 'n': expected int, got str")
    assert len(found) <= 200
