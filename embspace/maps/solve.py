"""Least-squares maps from sums: one factorisation a source, shared by all its targets. [DIN] §3"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import EmbspaceError
from .sums import Sums

Kind = Literal["mat", "affine", "ridge"]
KINDS: tuple[Kind, ...] = ("mat", "affine", "ridge")
EXACT = 256  # moments of up to so many coordinates: all eigenvalues rather than the outer two
UNIT = {"float64": 2.0**-52, "float32": 2.0**-23}  # of the products that the sums are made of


@dataclass(frozen=True)
class Solution:
    """Maps of one source to some targets: x A + b, the targets' columns side by side.

    rank of the source's rows; condition: their largest over their smallest singular value, the
    columns scaled to length 1 (with the rows of the penalty for "ridge", centred for "affine", of
    the directions kept where some are cut); cut: relative size of their moments below which a
    direction counts as absent, None where none was cut.
    """

    targets: tuple[str, ...]
    A: Float[Tensor, "d k"]
    b: Float[Tensor, "k"] | None
    rank: int
    condition: float
    cut: float | None


def solve(
    sums: Sums,
    source: str,
    targets: tuple[str, ...] | None = None,
    *,
    kind: Kind = "mat",
    ridge: float = 0.0,
) -> Solution:
    """The maps of a source to all its targets, or to some.

    A minimises Σ ‖x A - y‖² (+ λ ‖A‖² for "ridge"; with intercept for "affine").

    Where the rows determine A, by Cholesky of the moments with their columns scaled to length 1;
    else the solution of least norm, from their eigenvectors above the cut. `ridge` has no unit: λ
    is `ridge` times the mean, over the source's coordinates, of Σ x² over the rows.
    Raises EmbspaceError where there are no rows.
    """
    targets = sums.plan.targets[source] if targets is None else targets
    if sums.n == 0:
        raise EmbspaceError("no row was seen, so there is nothing to fit.")
    d, affine = sums.d, kind == "affine"
    moments = sums.moments(source, targets, centred=affine)
    gram, cross = moments[:, :d], moments[:, d:]
    if kind == "ridge":
        strength = ridge * float(gram.diagonal().mean())
        gram = gram + strength * torch.eye(d, dtype=gram.dtype, device=gram.device)
    n_free = sums.n - affine if kind != "ridge" else d
    enough = n_free >= d and _well_rounded(sums, source, kind)
    unit = _unit(sums, source, gram)
    A, rank, condition, cut = _least_squares(gram, cross, n_free, unit, enough)
    if not affine:
        return Solution(targets, A, None, rank, condition, cut)
    means = torch.cat([sums.mean(target) for target in targets])
    return Solution(targets, A, means - sums.mean(source) @ A, rank, condition, cut)


def _well_rounded(sums: Sums, source: str, kind: Kind) -> bool:
    """Whether rounded products allow a map to be determined: judged in the coordinates that were
    multiplied in float32, since turning them back is exact."""
    products = sums.as_multiplied(source)
    if products is None or kind == "ridge":
        return True
    scaled, _ = _scaled(products)
    factor, failed = torch.linalg.cholesky_ex(scaled)
    if int(failed):
        return False
    # the 1-norm's condition is tens of times the spectral one, which this keeps below some 10⁴:
    # many roundings of either sign then move the weakest direction by less than a hundredth
    return 8 * UNIT["float32"] < 0.1 * _reciprocal_condition(scaled, factor)


def _unit(sums: Sums, source: str, gram: Tensor) -> float:
    """Rounding of the moments, relative to their diagonal."""
    if sums.as_multiplied(source) is None:
        return UNIT["float64"]
    rounded = sums.about_shift(source).diagonal()
    share = (rounded / gram.diagonal().clamp_min(1e-300)).max().clamp_max(1)
    return max(UNIT["float64"], UNIT["float32"] * float(share))


def _scaled(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of columns scaled to length 1, and the scales."""
    scale = gram.diagonal().clamp_min(0).sqrt()
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    return gram * inverse[:, None] * inverse, inverse


def _least_squares(gram: Tensor, cross: Tensor, n: int, unit: float, enough: bool):
    """(A, rank, condition, cut) of gram A = cross, of least norm where gram is singular.

    enough: whether rows and rounding may determine A at all.
    """
    d = len(gram)
    scaled, inverse = _scaled(gram)
    factor, failed = torch.linalg.cholesky_ex(scaled)
    determined = enough and not int(failed)
    if determined and d * UNIT["float64"] < 1e-2 * _reciprocal_condition(scaled, factor):
        A = torch.cholesky_solve(cross * inverse[:, None], factor) * inverse[:, None]
        return A, d, _condition(scaled, factor), None
    return _of_least_norm(gram, scaled, cross, n, unit)


def _of_least_norm(gram: Tensor, scaled: Tensor, cross: Tensor, n: int, unit: float):
    """The same from eigenvectors: the rank is told with columns scaled, the solution without."""
    d = len(gram)
    cut = d * unit
    sizes = torch.linalg.eigvalsh(scaled)
    rank = min(n, int((sizes > cut * sizes[-1].clamp_min(1e-300)).sum()))
    values, vectors = torch.linalg.eigh(gram)
    above = int((values > UNIT["float64"] * d * values[-1].clamp_min(1e-300)).sum())
    rank = min(rank, above)
    if rank == 0:
        return torch.zeros_like(cross), 0, float("inf"), cut
    values, vectors = values[-rank:], vectors[:, -rank:]
    A = vectors @ ((vectors.T @ cross) / values[:, None])
    return A, rank, float((sizes[-1] / sizes[-rank].clamp_min(1e-300)).sqrt()), cut


def _reciprocal_condition(scaled: Tensor, factor: Tensor) -> float:
    """1-norm estimate of 1 / condition from a Cholesky factor (LAPACK's pocon)."""
    from scipy.linalg import get_lapack_funcs

    norm = float(scaled.abs().sum(0).max())
    pocon: Any = get_lapack_funcs("pocon", dtype="float64")
    found, _ = pocon(factor.T.contiguous().cpu().numpy(), norm)
    return float(found)


def _condition(scaled: Tensor, factor: Tensor) -> float:
    """Condition number of the rows that moments are of: the root of that of the moments."""
    if len(scaled) <= EXACT:
        sizes = torch.linalg.eigvalsh(scaled)
        return float((sizes[-1] / sizes[0].clamp_min(1e-300)).sqrt())
    from scipy.linalg import cho_solve
    from scipy.sparse.linalg import LinearOperator, eigsh

    moments, lower = scaled.cpu().numpy(), factor.cpu().numpy()
    start = torch.randn(
        len(moments), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    inverse = LinearOperator(
        moments.shape,
        matvec=lambda x: cho_solve((lower, True), x, check_finite=False),  # type: ignore[call-arg]
        dtype=moments.dtype,  # type: ignore[call-arg]
    )
    most, least = (
        float(eigsh(one, k=1, v0=start.numpy(), return_eigenvectors=False)[0])
        for one in (moments, inverse)
    )
    return (most * least) ** 0.5


def r2_of(sums: Sums, source: str, solution: Solution) -> dict[str, "R2"]:
    """Held-out r² of each target from the held-out sums alone.

    `sklearn.metrics.r2_score(y, x A + b)`, uniform average over the coordinates that vary.
    """
    d, targets = sums.d, solution.targets
    moments = sums.moments(source, targets)
    gram, cross = moments[:, :d], moments[:, d:]
    A = solution.A
    missed = -2 * (A * cross).sum(0) + (A * (gram @ A)).sum(0)
    if solution.b is not None:
        b, n = solution.b, sums.n
        t_x = n * sums.mean(source)
        t_y = n * torch.cat([sums.mean(target) for target in targets])
        missed = missed - 2 * b * t_y + 2 * b * (t_x @ A) + n * b * b
    return {
        target: _r2(sums, target, missed[k * d : (k + 1) * d]) for k, target in enumerate(targets)
    }


def r2_of_identity(sums: Sums, source: str) -> dict[str, "R2"]:
    """The same for x unchanged, for every target."""
    d = sums.d
    moments = sums.moments(source, sums.plan.targets[source])
    own = moments[:, :d].diagonal()
    return {
        target: _r2(sums, target, own - 2 * moments[:, (k + 1) * d : (k + 2) * d].diagonal())
        for k, target in enumerate(sums.plan.targets[source])
    }


@dataclass(frozen=True)
class R2:
    """Mean r² over the coordinates that vary, the least and the median one, how many do not vary.

    pooled: 1 - ΣSSE / ΣSST over all coordinates, which a few outlying rows can carry alone.
    """

    mean: float
    median: float
    least: float
    pooled: float
    n_constant: int


def _r2(sums: Sums, target: str, missed: Float[Tensor, "d"]) -> R2:
    energy = sums.energy(target)
    variation = sums.variation(target)
    # neither constant, nor so small beside the others (1e-20) that it is rounding and no signal
    varies = (variation > 1e-12 * energy.clamp_min(1e-300)) & (variation > 1e-40 * energy.max())
    if sums.n < 2 or not bool(varies.any()):
        nan = float("nan")
        return R2(nan, nan, nan, nan, int((~varies).sum()))
    errors = (energy + missed)[varies].clamp_min(0)
    each = 1 - errors / variation[varies]
    pooled = 1 - float(errors.sum() / variation[varies].sum())
    constant = int((~varies).sum())
    return R2(float(each.mean()), float(each.median()), float(each.min()), pooled, constant)
