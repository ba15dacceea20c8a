"""Arguments looked at before they are used, so that a wrong one never becomes a wrong number."""

import operator
from collections.abc import Collection, Iterable
from typing import Any

from .errors import EmbspaceError

LARGEST_SEED = 2**63 - 1


def whole(n: Any, what: str, *, error: type[EmbspaceError] = EmbspaceError) -> int:
    """A whole number; raises for fractions, text, truth values and slices."""
    truth = isinstance(n, bool) or "bool" in str(getattr(n, "dtype", ""))
    try:
        if not truth:
            return operator.index(n)
    except (TypeError, ValueError, RuntimeError):  # tensors of several numbers among them
        pass
    raise error(f"{what} must be a whole number, not {_short(n)}.")


def index(n: Any, size: int, what: str, *, error: type[EmbspaceError] = EmbspaceError) -> int:
    """A number from 0 to size - 1; raises for any other, negative ones included."""
    n = whole(n, what, error=error)
    if not 0 <= n < size:
        raise error(f"{what} {n} does not exist: there are 0 to {size - 1}.")
    return n


def indices(
    given: Any, size: int, what: str, *, error: type[EmbspaceError] = EmbspaceError
) -> list[int]:
    """A list of such numbers; raises for a single number or text."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise error(f"give a list of {what} numbers, not {_short(given)}.")
    try:
        numbers = list(given)
    except TypeError as problem:  # a tensor of no dimensions
        raise error(f"give a list of {what} numbers, not {_short(given)}.") from problem
    return [index(n, size, what, error=error) for n in numbers]


def positive(k: Any, what: str = "k") -> int:
    """A whole number of at least 1."""
    k = whole(k, what)
    if k < 1:
        raise EmbspaceError(f"{what} must be at least 1, got {k}.")
    return k


def seed(n: Any) -> int:
    """A seed that every generator takes."""
    n = whole(n, "seed")
    if not 0 <= n <= LARGEST_SEED:
        raise EmbspaceError(f"seed must lie in 0 … 2**63 - 1, got {_short(n)}.")
    return n


def one_of(value: Any, names: Iterable[str], what: str) -> str:
    """One of a few names."""
    names = tuple(names)
    if not isinstance(value, str) or value not in names:
        raise EmbspaceError(f"unknown {what} {_short(value)}: use {' or '.join(names)}.")
    return value


def known(given: Iterable[str], taken: Collection[str], function: str) -> None:
    """Raise TypeError, as Python does, for a keyword that a function does not take.

    For functions that hand their keywords on: one that they do not know must never be dropped.
    """
    for name in given:
        if name not in taken:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {_short(name)}: beside its own "
                f"it takes {', '.join(sorted(taken))}."
            )


def is_unicode(text: str) -> bool:
    """Whether a text has whole characters only: no lone surrogates, as odd bytes become."""
    try:
        text.encode("utf8")
    except UnicodeEncodeError:
        return False
    return True


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:79] + "…"
