"""95 % intervals: bootstrap over texts, so that positions of one text count as one draw."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

N_DRAWS = 1000
LEVEL = 0.95


class Bootstrap:
    """Draws of texts with replacement, the same for every number of one table."""

    def __init__(self, lines: Int[Tensor, "n"], *, seed: int = 0, n_draws: int = N_DRAWS) -> None:
        texts, self._text_of = lines.unique(return_inverse=True)
        self._n_texts = len(texts)
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(self._n_texts, (n_draws, self._n_texts), generator=generator)
        weights = torch.zeros(n_draws, self._n_texts, dtype=torch.float64)
        self._weights = weights.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
        self._sizes = self._by_text(torch.ones(len(lines), dtype=torch.float64))

    def _by_text(self, values: Tensor) -> Tensor:
        return torch.zeros(self._n_texts, dtype=torch.float64).index_add_(0, self._text_of, values)

    def interval(self, values: Float[Tensor, "n"]) -> tuple[float, float]:
        """95 % interval of the mean of some values, one a row."""
        means = self.means(values)
        rest = (1 - LEVEL) / 2
        ends = torch.quantile(means, torch.tensor([rest, 1 - rest], dtype=torch.float64))
        return float(ends[0]), float(ends[1])

    def means(self, values: Float[Tensor, "n"]) -> Float[Tensor, "draws"]:
        """The mean in every draw."""
        return (self._weights @ self._by_text(values.double())) / (self._weights @ self._sizes)
