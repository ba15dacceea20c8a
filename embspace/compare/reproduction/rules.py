"""The rules that decide whether a claim holds: comparisons that a reader can read."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import EmbspaceError
from .quantities import Numbers

OPPOSITE = {">": "<", "<": ">", ">=": "<", "<=": ">"}
Bounds = Mapping[str, tuple[Numbers, Numbers]]  # low and high ends of a quantity's intervals
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
    close: bool = False  # whether it would not stand, were numbers at the far ends of intervals


def parse(rule: str) -> tuple[Comparison, ...]:
    """`a > b everywhere and c >= 0.5` as comparisons. Raises EmbspaceError for anything else."""
    found = []
    for part in rule.split(" and "):
        match = RULE.fullmatch(part)
        if match is None:
            raise EmbspaceError(f"{part!r} is no rule: write NAME > NAME everywhere.")
        found.append(Comparison(match[1], match[2], match[3], match[4] or ""))
    return tuple(found)


def judge(
    rule: str, quantities: Mapping[str, Numbers], bounds: Bounds | None = None
) -> Outcome | None:
    """Apply a rule to measured numbers; None where one that it needs was not measured.

    Everywhere: at every place that both sides have. On average: the means over those places.
    With bounds, the outcome is close where intervals overlap that decide it.
    """
    outcomes = [_compared(each, quantities, bounds or {}) for each in parse(rule)]
    known = [outcome for outcome in outcomes if outcome is not None]
    if len(known) < len(outcomes):
        return None
    holds = all(outcome.holds for outcome in known)
    deciding = [outcome for outcome in known if outcome.holds == holds]
    return Outcome(
        holds,
        sum(outcome.n_right for outcome in known),
        sum(outcome.n for outcome in known),
        tuple(dict.fromkeys(name for outcome in known for name in outcome.wrong)),
        (any if holds else all)(outcome.close for outcome in deciding),
    )


def _compared(
    each: Comparison, quantities: Mapping[str, Numbers], bounds: Bounds
) -> Outcome | None:
    left, limit = quantities[each.left], _number(each.right)
    right = quantities[each.right] if limit is None else dict.fromkeys(left, limit)
    shared = [name for name in left if name in right]
    if not shared:
        return None
    if len(shared) > 1 and not each.how:
        raise EmbspaceError(f"{each.left} has {len(shared)} values: say everywhere or on average.")
    sides = {each.left: left, each.right: right}
    if each.how == AVERAGE:
        sides = {name: {"": _mean(side, shared)} for name, side in sides.items()}
        bounds = {name: _mean_ends(ends, shared) for name, ends in bounds.items()}
        shared = [""]
    compare = COMPARE[each.sign]
    wrong = tuple(n for n in shared if not compare(sides[each.left][n], sides[each.right][n]))
    deciding = wrong or tuple(shared)
    clear = [_is_clear(each, name, sides, bounds, holds=not wrong) for name in deciding]
    named = tuple(name for name in wrong if name)
    close = not (any(clear) if wrong else all(clear))
    return Outcome(not wrong, len(shared) - len(wrong), len(shared), named, close)


def _is_clear(
    each: Comparison, place: str, sides: Mapping[str, Numbers], bounds: Bounds, *, holds: bool
) -> bool:
    """Whether a comparison stays as it is at the near ends of both intervals."""
    sign = each.sign if holds else OPPOSITE[each.sign]
    low_first = sign in (">", ">=")
    ends = []
    for name, at in ((each.left, 0 if low_first else 1), (each.right, 1 if low_first else 0)):
        own = bounds.get(name)
        ends.append((own[at] if own else sides[name]).get(place, sides[name][place]))
    return COMPARE[sign](*ends)


def _mean(side: Numbers, places: list[str]) -> float:
    return sum(side[name] for name in places) / len(places)


def _mean_ends(ends: tuple[Numbers, Numbers], places: list[str]) -> tuple[Numbers, Numbers]:
    """The mean of the ends: wider than the interval of the mean."""
    low, high = ({"": _mean(end, places)} if all(p in end for p in places) else {} for end in ends)
    return low, high


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
