"""What a certificate has found: the largest error of each claim, or why there is none."""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor

from .record import BlockRecord


def ratio(off: Tensor, true: Tensor, floor: float = 0.0) -> float:
    """max |off| / max |true| (at least `floor`); infinite where that is no number."""
    scale, most = max(float(true.double().abs().max()), floor), float(off.double().abs().max())
    error = most / scale if scale else (0.0 if most == 0 else math.inf)
    return math.inf if math.isnan(error) else error


class Ledger:
    """The largest relative error of each claim, and where it occurred."""

    def __init__(self) -> None:
        self.worst: dict[str, tuple[float, int | None]] = {}
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def compare(
        self, what: str, layer: int | None, ours: Tensor, true: Tensor, *, floor: float = 0.0
    ) -> None:
        """Note max |ours - true| / max |true|."""
        fits = ours.shape == true.shape
        error = ratio(ours.double() - true.double(), true, floor) if fits else math.inf
        self.fail_by(what, layer, error)

    def fail_by(self, what: str, layer: int | None, error: float) -> None:
        """Note an error, if it is the largest so far."""
        if what not in self.worst or error > self.worst[what][0]:
            self.worst[what] = (error, layer)

    def fail(self, what: str, layer: int | None, reason: str, error: float = math.inf) -> None:
        """Note a failure that a sentence says better than a number."""
        self.failed.setdefault(what, reason)
        self.fail_by(what, layer, error)

    def skip(self, what: str, reason: str) -> None:
        """Note why a claim does not apply, unless another block showed that it does."""
        self.skipped.setdefault(what, reason)


def claim(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A check whose shapes do not fit has failed: that is what a wrong split looks like."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @wraps(check)
        def checked(self: Any, *args: Any) -> None:
            try:
                check(self, *args)
            except (RuntimeError, IndexError):
                layer = args[0].layer if args and isinstance(args[0], BlockRecord) else None
                self.ledger.fail_by(what, layer, math.inf)

        return checked

    return decorate
