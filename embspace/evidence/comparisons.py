"""Comparisons that decide a claim: where they hold, what is a tie, and what is a close call."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import EmbspaceError

Numbers = dict[str, float]  # a number for each place (a layer, a group); "" where there is one
LISTED = 8  # numbers that are shown one by one
NAMED = 4  # places at which a comparison fails that are listed


class LackingError(EmbspaceError):
    """A claim cannot be judged: the model at hand lacks what it speaks of."""


@dataclass(frozen=True)
class Answer:
    """Whether a claim holds (None: a tie), what was measured, and whether intervals overlap."""

    holds: bool | None
    ours: str
    numbers: dict[str, Numbers]
    close: bool = False


@dataclass(frozen=True)
class Curve:
    """A quantity at some places, with the ends of 95 % intervals where they are known."""

    name: str
    values: Numbers
    low: Numbers = field(default_factory=dict)
    high: Numbers = field(default_factory=dict)

    def ends(self, place: str) -> tuple[float, float]:
        """Both ends at a place: twice the value where no interval is known."""
        value = self.values[place]
        return self.low.get(place, value), self.high.get(place, value)

    def mean(self, places: list[str]) -> "Curve":
        """The mean over places; its ends are the means of the ends, wider than its interval."""
        low, high = (
            {"": sum(end[p] for p in places) / len(places)} if set(places) <= set(end) else {}
            for end in (self.low, self.high)
        )
        return Curve(self.name, {"": sum(self.values[p] for p in places) / len(places)}, low, high)


def curve(name: str, rows: Mapping[str, Mapping[str, Any]], measure: str) -> Curve:
    """A measure of some rows, `measure_interval` its ends; rows without it are left out."""
    found = {place: row[measure] for place, row in rows.items() if is_number(row.get(measure))}
    ends = {
        place: rows[place][f"{measure}_interval"]
        for place in found
        if rows[place].get(f"{measure}_interval")
    }
    known = {place: pair for place, pair in ends.items() if all(is_number(end) for end in pair)}
    low, high = ({place: pair[n] for place, pair in known.items()} for n in (0, 1))
    return Curve(name, found, low, high)


def estimates(name: str, rows: Mapping[str, Mapping[str, Any]]) -> Curve:
    """Means with `low` and `high` ends."""
    mean, low, high = (
        {place: row[key] for place, row in rows.items() if is_number(row.get(key))}
        for key in ("mean", "low", "high")
    )
    return Curve(name, mean, low, high)


def is_number(value: Any) -> bool:
    """Whether it is a number, and no NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def everywhere(
    left: Curve, right: Curve, *, smaller: bool = False, percent: bool = False
) -> Answer:
    """Is left larger (smaller) than right at every place that both have?

    A place where both are equal leaves it undecided, unless another one is the wrong way round.
    The call is close where intervals overlap that decide it.
    """
    places = _shared(left, right)
    wrong, equal = _wrong_and_equal(left, right, places, smaller)
    holds = False if wrong else None if equal else True
    ours = f"{_shown(left, places, percent)}, {_shown(right, places, percent)}"
    if len(places) > 1:
        ours += f" (means), {len(places) - len(wrong) - len(equal)} of {len(places)}"
    ours += _named("not at", wrong) + _named("equal at", equal)
    if equal == [""]:
        ours += ", a tie"
    return Answer(holds, ours, _numbers(left, right), _is_close(left, right, places, smaller))


def on_average(
    left: Curve, right: Curve, *, smaller: bool = False, percent: bool = False
) -> Answer:
    """Is the mean of left over the places that both have larger (smaller) than that of right?"""
    places = _shared(left, right)
    found = everywhere(left.mean(places), right.mean(places), smaller=smaller, percent=percent)
    words = " (means)" if len(places) > 1 else ""
    return Answer(found.holds, found.ours + words, _numbers(left, right), found.close)


def every(name: str, values: Numbers, holds: Callable[[float], bool]) -> Answer:
    """Does a test hold for every number?"""
    if not values:
        raise LackingError(f"this model has no {name}")
    wrong = [place for place, value in values.items() if not holds(value)]
    if len(values) > LISTED:
        ours = f"{name}: {len(values) - len(wrong)} of {len(values)}"
    else:
        ours = f"{name}: " + ", ".join(f"{at} {v:.3f}".strip() for at, v in values.items())
    return Answer(not wrong, ours + _named("not at", [at for at in wrong if at]), {name: values})


def together(answers: Iterable[Answer]) -> Answer:
    """All of several answers: fails where one fails, undecided where one is, close where one is."""
    answers = tuple(answers)
    verdicts = [answer.holds for answer in answers]
    holds = False if False in verdicts else None if None in verdicts else True
    numbers = {name: each for answer in answers for name, each in answer.numbers.items()}
    deciding = [answer for answer in answers if answer.holds == holds]
    close = (all if holds is False else any)(answer.close for answer in deciding)
    return Answer(holds, "; ".join(answer.ours for answer in answers), numbers, close)


def _shared(left: Curve, right: Curve) -> list[str]:
    for one in (left, right):
        if not one.values:
            raise LackingError(f"this model has no {one.name}")
    places = [place for place in left.values if place in right.values]
    if not places:
        raise LackingError("nothing to compare")
    return places


def _wrong_and_equal(
    left: Curve, right: Curve, places: list[str], smaller: bool
) -> tuple[list[str], list[str]]:
    """Places where the comparison is the wrong way round, and those of ties."""
    one, other = (right, left) if smaller else (left, right)
    wrong = [place for place in places if one.values[place] < other.values[place]]
    return wrong, [place for place in places if one.values[place] == other.values[place]]


def _is_close(left: Curve, right: Curve, places: list[str], smaller: bool) -> bool:
    """Whether the intervals overlap at a place that holds, or at all of those that fail."""
    one, other = (right, left) if smaller else (left, right)
    wrong, equal = _wrong_and_equal(left, right, places, smaller)
    if wrong:
        return all(one.ends(place)[1] >= other.ends(place)[0] for place in wrong)
    return not equal and any(one.ends(place)[0] <= other.ends(place)[1] for place in places)


def _numbers(*curves: Curve) -> dict[str, Numbers]:
    return {one.name: one.values for one in curves}


def _shown(one: Curve, places: list[str], percent: bool) -> str:
    value = sum(one.values[place] for place in places) / len(places)
    return f"{one.name} " + (f"{value:.1%}" if percent else f"{value:.3f}")


def _named(words: str, places: list[str]) -> str:
    """`; not at 3, 4 …`; nothing where no place has a name."""
    named = [place for place in places if place]
    more = " …" if len(named) > NAMED else ""
    return f"; {words} {', '.join(named[:NAMED])}{more}" if named else ""
