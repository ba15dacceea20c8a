"""95 % intervals over texts: positions of one text count together, never as so many draws.

A share gets Wilson's ends with an effective number of rows; a mean gets an expanded bootstrap
interval. Neither has width zero because a sample happened to agree with itself.
"""

from math import sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor

N_DRAWS = 1000
LEVEL = 0.95
FEWEST = 5  # texts: the mean of fewer has no interval, for their spread tells too little
Interval = tuple[float, float] | None


class Bootstrap:
    """Draws of texts with replacement, the same for every number of one table."""

    def __init__(self, lines: Int[Tensor, "n"], *, seed: int = 0, n_draws: int = N_DRAWS) -> None:
        texts, self._text_of = lines.unique(return_inverse=True)
        self.n_texts, self.n_rows = len(texts), len(lines)
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(self.n_texts, (n_draws, self.n_texts), generator=generator)
        weights = torch.zeros(n_draws, self.n_texts, dtype=torch.float64)
        self._weights = weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
        self._sizes = self._by_text(torch.ones(len(lines), dtype=torch.float64))

    def _by_text(self, values: Tensor) -> Tensor:
        return torch.zeros(self.n_texts, dtype=torch.float64).index_add_(0, self._text_of, values)

    def means(self, values: Float[Tensor, "n"]) -> Float[Tensor, "draws"]:
        """The mean in every draw."""
        return (self._weights @ self._by_text(values.double())) / (self._weights @ self._sizes)

    def share(self, hits: Tensor, spread: float | None = None) -> Interval:
        """95 % interval of the share of rows that hit: Wilson's ends at the effective number.

        spread: the variance of the share where more than the texts varies, as by a choice made
        again in every draw.
        """
        share = float(hits.double().mean())
        n = self.effective(hits)
        if spread and 0 < share < 1:
            n = min(n, share * (1 - share) / spread)
        return wilson(share, n)

    def effective(self, hits: Tensor) -> float:
        """Rows drawn one by one that would tell as much of a share as these rows of texts do.

        n over the design effect (the variance between texts over that of single rows), lowered by
        (z / t)² where few texts tell the variance (Korn and Graubard 1998). Never more than the
        rows, and never fewer than where every text is a single draw, (Σ m)² / Σ m² of the sizes m.
        Where all rows are alike they say nothing of the spread, so a text is a single draw.
        """
        from scipy.stats import t

        rows, k = float(self.n_rows), self.n_texts
        single = rows**2 / float((self._sizes**2).sum())
        share = float(hits.double().mean())
        if k == rows or k < 2 or share in (0.0, 1.0):
            return single
        off = self._by_text(hits.double()) - share * self._sizes
        variance = k / (k - 1) * float((off**2).sum()) / rows**2
        told = (_z() / float(t.ppf((1 + LEVEL) / 2, k - 1))) ** 2
        effective = told * share * (1 - share) / variance if variance else rows
        return max(single, min(rows, effective))

    def mean(self, values: Float[Tensor, "n"]) -> Interval:
        """95 % interval of a mean, one value a row; None where the texts tell none.

        That is with fewer than `FEWEST` texts, with a mean that is no number, and with values that
        are all the same.
        """
        return spanned(self.means(values), self.n_texts)


def spanned(draws: Float[Tensor, "draws"], n_texts: int) -> Interval:
    """95 % interval of a number that was worked out anew in every draw of n texts.

    Percentiles, expanded for few texts: those at Φ(∓ t √(n / (n - 1))), t of n - 1 degrees of
    freedom (Hesterberg 2015), for plain ones are too narrow.
    """
    from scipy.stats import norm, t

    if n_texts < FEWEST or not bool(draws.isfinite().all()):
        return None
    reach = float(t.ppf((1 + LEVEL) / 2, n_texts - 1)) * sqrt(n_texts / (n_texts - 1))
    rest = float(norm.cdf(-reach))
    low, high = torch.quantile(draws, torch.tensor([rest, 1 - rest], dtype=draws.dtype)).tolist()
    return (low, high) if high - low > 1e-12 * max(1.0, abs(low)) else None


def wilson(share: float, n: float) -> tuple[float, float]:
    """Ends of the 95 % interval of a share, (p̂ + z²/2n ± z √(p̂(1-p̂)/n + z²/4n²)) / (1 + z²/n)."""
    z = _z()
    centre = share + z * z / (2 * n)
    reach = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((centre + side * reach) / (1 + z * z / n) for side in (-1, 1))
    return (0.0 if share == 0 else max(0.0, low)), (1.0 if share == 1 else min(1.0, high))


def _z() -> float:
    from scipy.stats import norm

    return float(norm.ppf((1 + LEVEL) / 2))
