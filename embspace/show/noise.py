"""How large a score over the rms may be by chance alone, so that less is shown dim."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..weights.vocabulary import VocabularySpace


def largest_of(n: float) -> float:
    """About the largest of n Gaussian scores of rms 1: √(2 ln n)."""
    return math.sqrt(2 * math.log(max(n, 1.0)))


def noise_of_pairs(
    space: "VocabularySpace", filters: Iterable[str] = (), token: str | None = None
) -> float:
    """For the strongest pair of a circuit; with a token, for the strongest in its row."""
    n = _taking_part(space, filters)
    return largest_of(float(n) * n if token is None else n)


def noise_of_vectors(space: "VocabularySpace", filters: Iterable[str] = ()) -> float:
    """For the strongest score of one vector."""
    return largest_of(_taking_part(space, filters))


def _taking_part(space: "VocabularySpace", filters: Iterable[str]) -> int:
    mask = space.mask(filters)
    return len(space) if mask is None else int(mask.sum())
