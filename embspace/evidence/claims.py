"""What the papers claim: a sentence, its place, the paper's figure, and the test that decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .comparisons import Answer, LackingError, Numbers

HOLDS, FAILS, TIED, VOID = "holds", "does not hold", "undecided", "not applicable"
VERDICTS = {True: HOLDS, False: FAILS, None: TIED}
PAPERS = {"jump": "2303.09435", "embedding": "2209.02535"}  # arXiv
Measured = Mapping[str, Any]  # the JSON of a step
Judge = Callable[[Measured], Answer]


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, in our words.

    step: the measurement it needs; section, figure: where it stands; number: what the paper
    reports, and of which model; rule: when it counts as holding here; judge: that test.
    """

    id: str
    paper: str
    step: str
    section: str
    figure: str
    says: str
    number: str
    rule: str
    judge: Judge

    @property
    def place(self) -> str:
        """Section and figure."""
        return ", ".join(part for part in (self.section, self.figure) if part)


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured here, and whether it holds (or why that cannot be said)."""

    claim: Claim
    verdict: str
    ours: str
    numbers: dict[str, Numbers]
    reason: str = ""
    close: bool = False  # the 95 % intervals that decide it overlap

    def to_dict(self) -> dict[str, Any]:
        """The claim's fields, then what was found."""
        own = {key: value for key, value in vars(self.claim).items() if key != "judge"}
        return own | {
            "verdict": self.verdict,
            "intervals_overlap": self.close,
            "ours": self.ours,
            "numbers": self.numbers,
            "reason": self.reason,
        }


def decide(claim: Claim, measured: Measured | None, why_not: str = "") -> Verdict:
    """Judge a claim by the JSON of its step; `measured` None: it was not done, `why_not`."""
    if measured is None:
        return Verdict(claim, VOID, "", {}, why_not)
    try:
        answer = claim.judge(measured)
    except LackingError as error:
        return Verdict(claim, VOID, "", {}, str(error))
    return Verdict(claim, VERDICTS[answer.holds], answer.ours, answer.numbers, close=answer.close)
