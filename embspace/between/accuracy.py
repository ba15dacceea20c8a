"""How often a classifier is right: a share with its Wilson interval, beside chance."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import EmbspaceError
from ..intervals import wilson as wilson_of_share


@dataclass(frozen=True)
class Accuracy:
    """`right` of `n` texts, the share of them (0 to 1) and the ends of its 95 % interval."""

    right: int
    n: int

    @property
    def share(self) -> float:
        """right / n."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of Wilson's interval of the share."""
        return wilson(self.right, self.n)

    def to_dict(self) -> dict[str, Any]:
        """Share, both ends, and the counts."""
        low, high = self.interval
        return {"accuracy": self.share, "low": low, "high": high, "right": self.right, "n": self.n}

    def above(self, chance: float) -> bool:
        """Whether the whole interval lies above the accuracy of chance."""
        return self.interval[0] > chance


def wilson(right: int, n: int) -> tuple[float, float]:
    """Ends of the 95 % interval of the share of right ones.

    Raises EmbspaceError where there is nothing to count.
    """
    if n < 1:
        raise EmbspaceError("an accuracy needs at least one text.")
    return wilson_of_share(right / n, n)


def accuracy(predicted: Sequence[int], truth: Sequence[int]) -> Accuracy:
    """How many predictions are the truth."""
    return Accuracy(sum(p == t for p, t in zip(predicted, truth, strict=True)), len(truth))


def chance(truth: Sequence[int]) -> float:
    """The accuracy of always naming the most frequent label."""
    return max(Counter(truth).values()) / len(truth)
