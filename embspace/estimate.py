"""A mean with its 95 % interval: what a measured figure is reported as."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over n things and the ends of its 95 % interval (None where n is 1)."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def to_dict(self) -> dict[str, Any]:
        """The four fields as a dict."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "n": self.n}

    def cells(self, name: str) -> dict[str, Any]:
        """Mean and ends under one name, for a row of a table."""
        return {name: self.mean, f"{name}_low": self.low, f"{name}_high": self.high}


def estimate(values: Float[Tensor, "n"]) -> Estimate:
    """Mean of independent values, mean ± t s/√n with Student's t of n - 1 degrees."""
    values = values.double()
    n = len(values)
    spread = float(values.std() / n**0.5) if n > 1 else None
    return _within(float(values.mean()), spread, n, n - 1)


def estimate_by_text(values: Float[Tensor, "n"], texts: Int[Tensor, "n"]) -> Estimate:
    """Mean of values that come in texts; the interval treats each text as one draw.

    Ratio estimator over T texts: variance T/(T-1) Σ_t (Σ_i∈t (x_i - mean))² / n².
    """
    values = values.double()
    n, mean = len(values), values.mean()
    _, group = texts.unique(return_inverse=True)
    n_texts = int(group.max()) + 1
    sums = values.new_zeros(n_texts).index_add_(0, group, values - mean)
    spread = None
    if n_texts > 1:
        spread = float((n_texts / (n_texts - 1) * sums.square().sum()).sqrt() / n)
    return _within(float(mean), spread, n, n_texts - 1)


def _within(mean: float, spread: float | None, n: int, degrees: int) -> Estimate:
    from scipy.stats import t

    if spread is None:
        return Estimate(mean, None, None, n)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, degrees)) * spread
    return Estimate(mean, mean - reach, mean + reach, n)
