"""How alike two sets of states are, row by row the same words: three measures, all in float64.

Debiased linear CKA needs no fit. A rotation and a linear map are fitted on some rows and scored on
others; with no more rows than columns either fits anything, and is refused (as CCA would be, whose
correlations are then all 1).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import EmbspaceError

LEAST = 4  # rows that the debiased estimate needs


@dataclass(frozen=True)
class Centred:
    """States less their mean, and the squared lengths of the rows: what CKA sees of them."""

    rows: Float[Tensor, "n d"]
    squares: Float[Tensor, "n"]

    @classmethod
    def of(cls, x: Float[Tensor, "n d"]) -> "Centred":
        """Raises EmbspaceError for fewer rows than the estimate needs."""
        if len(x) < LEAST:
            raise EmbspaceError(f"{len(x)} rows are too few to compare: give at least {LEAST}.")
        rows = x.double() - x.double().mean(dim=0)
        return cls(rows, rows.square().sum(dim=1))


def debiased_hsic(x: Centred, y: Centred) -> float:
    """Unbiased estimate of HSIC with linear kernels, up to a factor that depends on n alone.

    Of K = X X^T and L = Y Y^T without their diagonals k and l (Song et al. 2012). The estimate does
    not change when rows are centred; then K 1 = -k, and no n × n matrix is needed:
    ‖X^T Y‖² - k·l + Σk Σl / ((n - 1)(n - 2)) - 2 k·l / (n - 2).
    """
    n = len(x.rows)
    k, l = x.squares, y.squares
    product = (x.rows.T @ y.rows).square().sum() - k @ l
    return float(product + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 * (k @ l) / (n - 2))


def debiased_cka(x: Float[Tensor, "n d_a"], y: Float[Tensor, "n d_b"]) -> float:
    """Debiased linear CKA of paired rows: 1 for equal states up to rotation and scale, 0 expected
    for independent ones, whatever n and d; NaN where either has no spread.

    HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)), each by its unbiased estimate (so slightly below 0 at
    times). Raises EmbspaceError for fewer than 4 rows or unpaired ones.
    """
    _require_pairs(x, y)
    one, other = Centred.of(x), Centred.of(y)
    return cka_of(one, other, debiased_hsic(one, one), debiased_hsic(other, other))


def cka_of(x: Centred, y: Centred, own_x: float, own_y: float) -> float:
    """The same, with HSIC(X, X) and HSIC(Y, Y) known."""
    if own_x <= 0 or own_y <= 0:
        return float("nan")
    return debiased_hsic(x, y) / (own_x * own_y) ** 0.5


@dataclass(frozen=True)
class Rotation:
    """y ≈ (x - mean_x) Q + mean_y with orthonormal Q (d_a × d_b: rows or columns, the fewer)."""

    Q: Float[Tensor, "d_a d_b"]
    mean_x: Float[Tensor, "d_a"]
    mean_y: Float[Tensor, "d_b"]

    def cosine(self, x: Float[Tensor, "n d_a"], y: Float[Tensor, "n d_b"]) -> float:
        """Mean cosine, -1 to 1, of rotated rows of x and rows of y, both less the fit's means."""
        turned = (x.double() - self.mean_x) @ self.Q
        return float(torch.cosine_similarity(turned, y.double() - self.mean_y).mean())


def orthogonal_procrustes(x: Float[Tensor, "n d_a"], y: Float[Tensor, "n d_b"]) -> Rotation:
    """The rotation of centred x that comes closest to centred y: Q = U V^T of X^T Y = U S V^T.

    Raises EmbspaceError unless n exceeds both widths, or for unpaired rows.
    """
    _require_pairs(x, y)
    _require_rows(len(x), max(x.shape[1], y.shape[1]), "a rotation")
    mean_x, mean_y = x.double().mean(dim=0), y.double().mean(dim=0)
    U, _, Vh = torch.linalg.svd((x.double() - mean_x).T @ (y.double() - mean_y), False)
    return Rotation(U @ Vh, mean_x, mean_y)


class LinearFit:
    """Least squares from centred x, ready for any number of targets; minimum norm, by SVD."""

    def __init__(self, x: Float[Tensor, "n d_a"]) -> None:
        """Raises EmbspaceError unless n exceeds the width."""
        _require_rows(len(x), x.shape[1], "a least-squares map")
        self.mean = x.double().mean(dim=0)
        U, S, Vh = torch.linalg.svd(x.double() - self.mean, False)
        smallest = S[0] * max(x.shape) * torch.finfo(S.dtype).eps
        kept = S.gt(smallest)
        self.rank = int(kept.sum())
        self._left, self._back = U[:, kept], Vh[kept].T / S[kept]

    def r2(
        self,
        y: Float[Tensor, "n d_b"],
        held_x: Float[Tensor, "m d_a"],
        held_y: Float[Tensor, "m d_b"],
    ) -> float:
        """Fit y, and the mean r² over coordinates of held-out rows (sklearn's uniform average).

        Coordinates that do not vary over the held-out rows are left out; NaN where none does.
        """
        mean = y.double().mean(dim=0)
        A = self._back @ (self._left.T @ (y.double() - mean))
        missed = held_y.double() - mean - (held_x.double() - self.mean) @ A
        spread = (held_y.double() - held_y.double().mean(dim=0)).square().sum(dim=0)
        varies = spread > 0
        return float((1 - missed.square().sum(dim=0)[varies] / spread[varies]).mean())


def is_constant(x: Float[Tensor, "n d"]) -> bool:
    """Whether all rows are alike, up to rounding: nothing can be told from them."""
    return float(Centred.of(x).squares.max()) <= 1e-12 * float(x.double().square().sum(1).max())


def largest_rows(x: Float[Tensor, "n d"]) -> float:
    """The longest centred row over the median one: far above 1, a few rows own the spread."""
    lengths = Centred.of(x).squares.sqrt()
    median = float(lengths.median())
    return float(lengths.max()) / median if median > 0 else float("nan")


def split_by_text(lines: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to fit on and rows to score on; all rows of a text are on one side.

    Raises EmbspaceError where either side would be empty.
    """
    every = torch.unique(lines)
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    n = round(share * len(every))
    if not 0 < n < len(every):
        raise EmbspaceError(f"{len(every)} texts cannot be split in two: give more text.")
    held = torch.isin(lines, every[order[:n]])
    return (~held).nonzero()[:, 0], held.nonzero()[:, 0]


def _require_pairs(x: Tensor, y: Tensor) -> None:
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise EmbspaceError(
            f"rows must be pairs of the same word: got {tuple(x.shape)} and {tuple(y.shape)}."
        )


def _require_rows(n: int, d: int, what: str) -> None:
    if n <= d:
        raise EmbspaceError(
            f"{what} between states {d} wide fits any {n} rows perfectly: give more text."
        )
