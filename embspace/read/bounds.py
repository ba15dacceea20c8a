"""A common basis for the two sides of a circuit, and how far float32 scores can be off in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import EmbspaceError
from .factors import Factor, round_up_norms, table_size

SAMPLE = 1024
ROUNDOFF = 2.0**-24
UNDERFLOW = 1e-33


@dataclass(frozen=True)
class Side:
    """One side's rows in the search basis.

    points: (n × d_h) float32, fl(E[ids] / unit · A T); norms: (n,) their norms, rounded up;
    reach: (n,) row norms of E[ids] / unit; ids: (n,) the rows' numbers in the table;
    blur: a point is off by at most blur · reach.
    """

    points: Tensor
    norms: Tensor
    reach: Tensor
    ids: Tensor
    blur: float


@dataclass(frozen=True)
class Screen:
    """Both sides in one basis: left.points_i · right.points_j ≈ scale · score(i, j).

    In float32, whatever the order of additions, the two differ by at most

        margin(i, j) = reach_i by_reach_j + norms_i by_norm_j + tiny

    where by_reach = a (norms_j + b reach_j) + c reach_j and by_norm = b reach_j + g norms_j, with
    a, b the blurs of the sides, c what rounding the two d × d_h matrices changed, and g twice the
    relative rounding of a dot product of d_h numbers (Higham 2002, §3.1): it also covers the
    rounding of the bounds in `blocks` and `short`, which have no margin of their own.
    """

    left: Side
    right: Side
    scale: float
    by_reach: Tensor
    by_norm: Tensor

    def margin(self, i: Tensor, j: Tensor) -> Tensor:
        """Rounding margins of the pairs (i, j), places in left and right."""
        by_left = self.left.reach[i] * self.by_reach[j] + self.left.norms[i] * self.by_norm[j]
        return by_left + UNDERFLOW

    def largest_margin(self) -> float:
        """One margin that holds for every pair."""
        total = self.left.reach.max() * self.by_reach.max()
        return float(total + self.left.norms.max() * self.by_norm.max()) * 1.0001 + UNDERFLOW


def screen(left: Factor, right: Factor, rows: Tensor | None, columns: Tensor | None) -> Screen:
    """Project both sides into the balanced basis, in float32, with rigorous margins.

    rows, columns: ids of the rows of either table that take part, or None for all.
    Raises EmbspaceError if a weight or table is NaN or infinite.
    """
    a, a_scale = _unit_matrix(left, rows)
    b, b_scale = _unit_matrix(right, columns)
    if not 0.0 < a_scale * b_scale < math.inf:
        raise EmbspaceError("the scores' range is beyond float64: scale the weights")
    forward, backward = _basis(_gram(left, a, rows), _gram(right, b, columns))
    a64, b64 = a @ forward, b @ backward
    a32, b32 = a64.float(), b64.float()
    slip = forward @ backward.T - torch.eye(len(forward)).to(forward)
    core = _norm(a32 - a64) * _norm(b32) + _norm(a64) * _norm(b32 - b64)
    core += (_norm(slip) + 1e-14 * _norm(forward) * _norm(backward)) * _norm(a) * _norm(b)
    one, other = _side(left, a32, rows), _side(right, b32, columns)
    dot = 2 * (left.matrix.shape[1] + 16) * ROUNDOFF
    by_reach = one.blur * (other.norms + other.blur * other.reach) + core * other.reach
    by_norm = other.blur * other.reach + dot * other.norms
    return Screen(one, other, a_scale * b_scale, by_reach * 1.0001, by_norm * 1.0001)


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix.double()))


def _unit_matrix(factor: Factor, ids: Tensor | None) -> tuple[Tensor, float]:
    """The matrix in float64, scaled so that no row's product exceeds 1, and that scale."""
    matrix = factor.matrix.double()
    if not bool(matrix.isfinite().all()):
        raise EmbspaceError("the matrix holds NaN or infinity: there is no strongest pair")
    size = table_size(factor)
    reach = size.row_norms if ids is None else size.row_norms[ids]
    peak = float(matrix.abs().max()) or 1.0
    matrix = matrix / peak
    bound = _norm(matrix) * float(reach.max())
    power = 2.0 ** -math.frexp(bound)[1]
    return matrix * power, power / peak / size.unit


def _gram(factor: Factor, matrix: Tensor, ids: Tensor | None) -> Tensor:
    """Second moments (d_h × d_h) of a sample of the projected rows."""
    n_rows = factor.n_rows if ids is None else len(ids)
    step = -(-n_rows // SAMPLE)
    sample = torch.arange(0, n_rows, step, device=matrix.device)
    sample = sample if ids is None else ids[sample]
    points = factor.product32(matrix.float(), sample, table_size(factor).unit).double()
    return points.T @ points / len(points)


def _basis(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """T and T^-T that give both second moments the same diagonal, largest first.

    With G = left, H = right: T = G^-1/2 U w^1/4 and T^-T = G^1/2 U w^-1/4, where U w U^T is the
    eigendecomposition of G^1/2 H G^1/2. Any invertible T is correct; this one balances the
    sides, so that norms bound scores as tightly as a change of basis allows on average, and
    gathers what can be had in the leading dimensions.
    """
    values, vectors = torch.linalg.eigh(left)
    values = values.clamp_min(max(float(values.max()) * 1e-8, 1e-30))
    root = (vectors * values.sqrt()) @ vectors.T
    inverse = (vectors / values.sqrt()) @ vectors.T
    values, vectors = torch.linalg.eigh(root @ right @ root)
    values = values.clamp_min(max(float(values.max()) * 1e-8, 1e-30)).flip(0)
    vectors = vectors.flip(1)
    return inverse @ vectors * values**0.25, root @ vectors / values**0.25


def _side(factor: Factor, matrix: Tensor, ids: Tensor | None) -> Side:
    size = table_size(factor)
    width, d_h = matrix.shape
    points = factor.product32(matrix, ids, size.unit)
    norms = round_up_norms(torch.linalg.vector_norm(points, dim=1), d_h)
    reach = size.row_norms if ids is None else size.row_norms[ids]
    numbers = torch.arange(len(points), device=points.device) if ids is None else ids
    blur = (width + 4) * ROUNDOFF * 1.01 * _norm(matrix)
    return Side(points, norms, reach, numbers, blur)
