"""Correlations of vectors without their projections: over the vocabulary, and over coordinates.

Centre the rows of E_A^T and E_B^T over the n shared tokens. Then, for x of A and y of B,

    cov(x E_A, y E_B) = x C_AB y^T / n,   var(x E_A) = x C_AA x^T / n

with d × d kernels C. With C_AA = F_A F_A^T and C_BB = F_B F_B^T, every vector is taken once to
x F_A / ‖x F_A‖, of length 1, and

    ρ(x, y) = (x F_A / ‖·‖) M (y F_B / ‖·‖)^T,   M = F_A^+ C_AB (F_B^+)^T,   ‖M‖ <= 1,

so that one product of two tables of short vectors gives all correlations, with an error of a few
roundings of 1 however unevenly E is spread. [DAR] §5.1.
"""

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from .shared_tokens import SharedTokens

BLOCK = 4096  # rows of E a product takes at a time
CONSTANT = 1e-10  # a spread below this share of the largest possible is none


class Space(Protocol):
    """Turns vectors of either model into ones whose products are the correlations."""

    def a(self, x: Float[Tensor, "n d"], /) -> Tensor:
        """Vectors of A with a spread, n' × r."""
        ...

    def b(self, y: Float[Tensor, "n d"], /) -> Tensor:
        """Vectors of B with a spread, n' × r."""
        ...


class VocabularyCorrelation:
    """Pearson's ρ over the shared tokens of x E_A and y E_B, through d × d kernels."""

    def __init__(self, table_a: Tensor, table_b: Tensor, shared: SharedTokens) -> None:
        aa, bb, ab = kernels(table_a, table_b, shared)
        self.factor_a, inverse_a = factor(aa)
        self.factor_b, inverse_b = factor(bb)
        self.between = inverse_a @ ab @ inverse_b.T
        self.on_a = self.factor_a.shape[1] >= self.factor_b.shape[1]  # products of the lesser width

    def a(self, x: Float[Tensor, "n d"]) -> Tensor:
        """x F_A over its length, times M where A is the wider."""
        unit = _units(x, self.factor_a)
        return unit @ self.between if self.on_a else unit

    def b(self, y: Float[Tensor, "n d"]) -> Tensor:
        """y F_B over its length, times M^T where B is the wider."""
        unit = _units(y, self.factor_b)
        return unit if self.on_a else unit @ self.between.T


class FeatureCorrelation:
    """Pearson's ρ over the d coordinates of x and y, as stored: the baseline without E."""

    def a(self, x: Float[Tensor, "n d"]) -> Tensor:
        """x less its mean, over its length."""
        centred = x - x.mean(dim=1, keepdim=True)
        return _lengthened(centred, x.norm(dim=1))

    b = a


def kernels(
    table_a: Float[Tensor, "rows d_a"], table_b: Float[Tensor, "rows d_b"], shared: SharedTokens
) -> tuple[Float[Tensor, "d_a d_a"], Float[Tensor, "d_b d_b"], Float[Tensor, "d_a d_b"]]:
    """C_AA, C_BB and C_AB over the shared tokens, centred before they are summed, in float64."""
    mean_a, mean_b = _mean(table_a, shared.ids_a), _mean(table_b, shared.ids_b)
    sizes = len(mean_a), len(mean_b)
    aa, bb, ab = (mean_a.new_zeros(sizes[i], sizes[j]) for i, j in ((0, 0), (1, 1), (0, 1)))
    for ids_a, ids_b in zip(shared.ids_a.split(BLOCK), shared.ids_b.split(BLOCK), strict=True):
        one, other = _rows(table_a, ids_a) - mean_a, _rows(table_b, ids_b) - mean_b
        aa.addmm_(one.T, one)
        bb.addmm_(other.T, other)
        ab.addmm_(one.T, other)
    return aa, bb, ab


def factor(kernel: Float[Tensor, "d d"]) -> tuple[Float[Tensor, "d r"], Float[Tensor, "r d"]]:
    """F with F F^T = C, and F^+, without the directions in which C is zero to rounding."""
    values, vectors = torch.linalg.eigh(kernel)
    top = values[-1].clamp_min(0)
    kept = values > top * len(values) * torch.finfo(values.dtype).eps
    roots, basis = values[kept].sqrt(), vectors[:, kept]
    return basis * roots, basis.T / roots[:, None]


def _units(x: Tensor, left: Tensor) -> Tensor:
    """x F over its length, without vectors that F takes to nothing.

    The columns of F are orthogonal: the longest is as much as F lengthens any vector.
    """
    longest = left.norm(dim=0).max() if left.shape[1] else left.new_zeros(())
    return _lengthened(x @ left, x.norm(dim=1) * longest)


def _lengthened(rows: Tensor, largest: Tensor) -> Tensor:
    """Rows of length 1, without those whose length is nothing beside the largest possible."""
    lengths = rows.norm(dim=1)
    kept = lengths > CONSTANT * largest
    return rows[kept] / lengths[kept, None]


def _mean(table: Tensor, ids: Tensor) -> Tensor:
    parts = (_rows(table, some).sum(dim=0) for some in ids.split(BLOCK))
    return torch.stack(list(parts)).sum(dim=0) / len(ids)


def _rows(table: Tensor, ids: Tensor) -> Tensor:
    return table[ids.to(table.device)].double()
