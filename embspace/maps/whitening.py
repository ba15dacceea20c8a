"""Coordinates in which float32 loses nothing that a map depends on."""

import torch
from jaxtyping import Float
from torch import Tensor

RIDGE = 1e-10  # over the mean square of a coordinate


def root_of(gram: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """R, upper triangular, with R^T R near the mean of x^T x over rows about their mean; float64.

    The coordinates of x R^-1 are of size 1 and nearly uncorrelated, so that products of them are
    rounded relative to the weakest direction of x, and not to its strongest. Any R will do: the
    moments are turned back by the same R. The rows should be twice as many as their coordinates.
    """
    size = float(gram.diagonal().mean())
    unit = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    if not 0 < size < float("inf"):
        return unit
    share = RIDGE
    while share <= 1:
        root, failed = torch.linalg.cholesky_ex(gram + share * size * unit, upper=True)
        if not int(failed):
            return root
        share *= 100
    return unit * size**0.5


def inverse_of(root: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """R^-1 in float32, which rows are multiplied by."""
    unit = torch.eye(len(root), dtype=root.dtype, device=root.device)
    return torch.linalg.solve_triangular(root, unit, upper=True).float()


def turn(block: Float[Tensor, "d k"], root: Float[Tensor, "d d"]) -> None:
    """Σ x^T [x y …] in the coordinates x R^-1, in place: R^-T Σ, and R^-1 on the right of x's."""
    d = len(root)
    block.copy_(torch.linalg.solve_triangular(root.T, block, upper=False))
    own = torch.linalg.solve_triangular(root, block[:, :d], upper=True, left=False)
    block[:, :d] = own
