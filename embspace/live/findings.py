"""The claims of a certificate: the largest error of each, or why there is none."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from torch import Tensor

from .tape import BlockRecord

EMBEDDING = "embedding"
DIRECTION = "direction"
QKV = "queries, keys, values"
PATTERN = "attention pattern"
ATTENTION = "attention output"
FEED_FORWARD = "feed-forward output"
RESIDUAL = "residual stream"
READING = "folded reading norms"
FINAL = "folded final norm"
LOGITS = "logits"
RECORDED = "recorded states"
ROWS = (
    *(EMBEDDING, DIRECTION, QKV, PATTERN, ATTENTION, FEED_FORWARD, RESIDUAL, READING, FINAL),
    *(LOGITS, RECORDED),
)
# every transformer has these
NEEDED = (EMBEDDING, DIRECTION, PATTERN, ATTENTION, FEED_FORWARD, RESIDUAL, RECORDED)
TOLERANCE = 2e-5  # rounding in float32 stays near 1e-6; a wrong split is off by far more


@dataclass(frozen=True)
class Claim:
    """One claim: its largest relative error and the block where it occurred, or why it is void."""

    what: str
    error: float | None  # None: does not apply
    layer: int | None
    tolerance: float
    passed: bool
    note: str = ""

    def __str__(self) -> str:
        if self.error is None:
            void = "not applicable" if self.passed else "cannot be compared"
            return f"{self.what}: {void} ({self.note})"
        where = "" if self.layer is None else f" at layer {self.layer}"
        if self.note:
            return f"{self.what}: {self.note}{where}"
        return f"{self.what}: off by {self.error:.2g}{where}, tolerance {self.tolerance:.0g}"

    def to_dict(self) -> dict[str, Any]:
        """The six fields as a dict; an infinite error is "inf", which JSON has no number for."""
        endless = self.error is not None and not math.isfinite(self.error)
        return vars(self) | ({"error": "inf"} if endless else {})


def relative_error(off: Tensor, true: Tensor, floor: float = 0.0) -> float:
    """max |off| / max |true| (at least `floor`); infinite where that is no number."""
    scale, most = max(float(true.double().abs().max()), floor), float(off.double().abs().max())
    error = most / scale if scale else (0.0 if most == 0 else math.inf)
    return math.inf if math.isnan(error) else error


class Findings:
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
        error = relative_error(ours.double() - true.double(), true, floor) if fits else math.inf
        self.note(what, layer, error)

    def note(self, what: str, layer: int | None, error: float) -> None:
        """Note an error, if it is the largest so far."""
        if what not in self.worst or error > self.worst[what][0]:
            self.worst[what] = (error, layer)

    def fail(self, what: str, layer: int | None, reason: str, error: float = math.inf) -> None:
        """Note a failure that a sentence says better than a number."""
        self.failed.setdefault(what, reason)
        self.note(what, layer, error)

    def skip(self, what: str, reason: str) -> None:
        """Note why a claim does not apply, unless another block showed that it does."""
        self.skipped.setdefault(what, reason)

    def claim(self, what: str, *, needed: bool) -> Claim:
        """What was found of a claim; one that is needed and was never compared has failed."""
        if what in self.worst:
            error, layer = self.worst[what]
            passed = error <= TOLERANCE
            return Claim(what, error, layer, TOLERANCE, passed, self.failed.get(what, ""))
        reason = self.skipped.get(what, "nothing to compare")
        return Claim(what, None, None, TOLERANCE, not needed, reason)


def check_of(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A check whose shapes do not fit has failed: that is what a wrong split looks like."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @wraps(check)
        def checked(self: Any, *args: Any) -> None:
            try:
                check(self, *args)
            except (RuntimeError, IndexError):
                layer = args[0].layer if args and isinstance(args[0], BlockRecord) else None
                self.findings.note(what, layer, math.inf)

        return checked

    return decorate
