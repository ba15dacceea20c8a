"""What the papers claim, each with its place, how it is measured here, and the rule that decides.

The claims lie in `claims.json`, the only place where a number of a paper stands.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from .quantities import Numbers, select
from .rules import AVERAGE, Bounds, Outcome, judge, parse

HOLDS, FAILS, VOID = "holds", "does not hold", "not applicable"
# How the path of a number becomes those of its interval's ends.
ENDS: dict[str, Callable[[str, int], str]] = {
    "interval": lambda path, end: f"{path}_interval/{end}",
    "estimate": lambda path, end: path.removesuffix("mean") + ("low", "high")[end],
}
LISTED = 8  # numbers that are shown one by one
NAMED = 4  # places where a rule fails that are listed
PAPERS = {"jump": "2303.09435", "embedding": "2209.02535"}  # arXiv


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, in our words.

    step: the measurement it needs; quantities: name -> path of its numbers in that step's JSON;
    rule: when it holds; number: what the paper reports, and of which model; percent: numbers are
    shares shown as such; ends: where the ends of each number's interval stand beside it (a key of
    `ENDS`, empty where there are none).
    """

    id: str
    paper: str
    section: str
    figure: str
    says: str
    number: str
    step: str
    quantities: Mapping[str, str]
    rule: str
    percent: bool = False
    ends: str = ""

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
        own = {key: value for key, value in vars(self.claim).items() if key != "quantities"}
        return own | {
            "measured_by": dict(self.claim.quantities),
            "verdict": self.verdict,
            "intervals_overlap": self.close,
            "ours": self.ours,
            "numbers": self.numbers,
            "reason": self.reason,
        }


def read_claims(paper: str) -> tuple[Claim, ...]:
    """The claims of one paper ("jump" or "embedding"), in the order of its sections."""
    text = (
        files(__package__ or "embspace.compare.reproduction")
        .joinpath("claims.json")
        .read_text(encoding="utf8")
    )
    return tuple(Claim(**row) for row in json.loads(text)["claims"] if row["paper"] == paper)


def decide(claim: Claim, measured: Mapping[str, Any] | None, why_not: str = "") -> Verdict:
    """Judge a claim by the JSON of its step; `measured` None: it was not done, `why_not`."""
    if measured is None:
        return Verdict(claim, VOID, "", {}, why_not)
    numbers = {name: select(measured, path) for name, path in claim.quantities.items()}
    outcome = judge(claim.rule, numbers, _bounds(claim, measured))
    if outcome is None:
        lacking = ", ".join(name for name, found in numbers.items() if not found)
        why = f"this model has no {lacking}" if lacking else "nothing to compare"
        return Verdict(claim, VOID, "", numbers, why)
    verdict = HOLDS if outcome.holds else FAILS
    ours = _ours(claim, numbers, outcome)
    return Verdict(claim, verdict, ours, numbers, close=bool(claim.ends) and outcome.close)


def _bounds(claim: Claim, measured: Mapping[str, Any]) -> Bounds:
    """Ends of the intervals of all quantities."""
    if not claim.ends:
        return {}
    path_of = ENDS[claim.ends]
    return {
        name: (select(measured, path_of(path, 0)), select(measured, path_of(path, 1)))
        for name, path in claim.quantities.items()
    }


def _ours(claim: Claim, numbers: dict[str, Numbers], outcome: Outcome) -> str:
    """`mat 0.632, id 0.360 (means), 4 of 4; not at 3-4`."""
    named = {n: numbers[n] for each in parse(claim.rule) for n in each.names}
    if len(named) == 1 and 1 < outcome.n <= LISTED:
        (name, found), *_ = named.items()
        return f"{_words(name)}: " + ", ".join(f"{n} {_shown(claim, v)}" for n, v in found.items())
    said = ", ".join(f"{_words(name)} {_mean(claim, found)}" for name, found in named.items())
    if any(len(found) > 1 for found in named.values()):
        said += " (means)"
        if AVERAGE not in claim.rule:
            said += f", {outcome.n_right} of {outcome.n}"
    if outcome.wrong and outcome.n > 1:
        more = " …" if len(outcome.wrong) > NAMED else ""
        said += f"; not at {', '.join(outcome.wrong[:NAMED])}{more}"
    return said


def _words(name: str) -> str:
    return name.replace("_", " ")


def _mean(claim: Claim, found: Numbers) -> str:
    return _shown(claim, sum(found.values()) / len(found))


def _shown(claim: Claim, value: float) -> str:
    return f"{value:.1%}" if claim.percent else f"{value:.3f}"
