"""The rules that decide whether a claim holds: comparisons that a reader can read."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import EmbspaceError
from .quantities import Numbers

COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
EVERYWHERE, AVERAGE = "everywhere", "on average"
RULE = re.compile(rf"(\w+) (>=|<=|>|<) (\w+|-?[\d.]+)(?: ({EVERYWHERE}|{AVERAGE}))?")


@dataclass(frozen=True)
class Comparison:
    """One comparison of a rule: `mat > id everywhere`, `share >= 0.3`."""

    left: str
    sign: str
    right: str
    how: str

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities it speaks of."""
        return tuple(n for n in (self.left, self.right) if _number(n) is None)


@dataclass(frozen=True)
class Outcome:
    """Whether a rule holds, in how many of how many comparisons, and where it does not."""

    holds: bool
    n_right: int
    n: int
    wrong: tuple[str, ...]


def parse(rule: str) -> tuple[Comparison, ...]:
    """`a > b everywhere and c >= 0.5` as comparisons. Raises EmbspaceError for anything else."""
    found = []
    for part in rule.split(" and "):
        match = RULE.fullmatch(part)
        if match is None:
            raise EmbspaceError(f"{part!r} is no rule: write NAME > NAME everywhere.")
        found.append(Comparison(match[1], match[2], match[3], match[4] or ""))
    return tuple(found)


def judge(rule: str, quantities: Mapping[str, Numbers]) -> Outcome | None:
    """Apply a rule to measured numbers; None where one that it needs was not measured.

    Everywhere: at every place that both sides have. On average: the means over those places.
    """
    outcomes = [_compared(each, quantities) for each in parse(rule)]
    known = [outcome for outcome in outcomes if outcome is not None]
    if len(known) < len(outcomes):
        return None
    return Outcome(
        all(outcome.holds for outcome in known),
        sum(outcome.n_right for outcome in known),
        sum(outcome.n for outcome in known),
        tuple(dict.fromkeys(name for outcome in known for name in outcome.wrong)),
    )


def _compared(each: Comparison, quantities: Mapping[str, Numbers]) -> Outcome | None:
    left, limit = quantities[each.left], _number(each.right)
    right = quantities[each.right] if limit is None else dict.fromkeys(left, limit)
    shared = [name for name in left if name in right]
    if not shared:
        return None
    compare = COMPARE[each.sign]
    if each.how == AVERAGE:
        means = (sum(side[name] for name in shared) / len(shared) for side in (left, right))
        holds = compare(*means)
        return Outcome(holds, int(holds), 1, ())
    if len(shared) > 1 and not each.how:
        raise EmbspaceError(f"{each.left} has {len(shared)} values: say everywhere or on average.")
    wrong = tuple(name for name in shared if not compare(left[name], right[name]))
    return Outcome(not wrong, len(shared) - len(wrong), len(shared), wrong)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
