"""Trusted heads come first."""

from embspace.estimate import Estimate
from embspace.evidence.head_trust import HeadTrust, Trust
from embspace.show import as_text


def test_heads_are_sorted_by_grade_then_by_agreement():
    def head(n, grade, own):
        return HeadTrust(0, n, "qk", grade, Estimate(own, own, own, 9), None, None, {})

    heads = (head(0, "none", 0.9), head(1, "some", 0.3), head(2, "strong", 0.4))
    heads = (*heads, head(3, "some", 0.5), head(4, "none", 0.95))
    text = as_text(Trust(heads, {"text": "t"}, {"model": "m"}), 100)
    rows = [line.split() for line in text.split("\n") if line.strip()[:1].isdigit()]
    assert [(int(row[1]), row[2]) for row in rows] == [
        (2, "strong"), (3, "some"), (1, "some"), (4, "none"), (0, "none"),
    ]  # fmt: skip
