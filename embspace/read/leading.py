"""Points cut to their leading coordinates, with one more number that bounds the rest.

With l leading coordinates, and t, u the norms of what is left of p and q,

    p · q <= (p_lead, t) · (q_lead, u)

so a product over l + 1 numbers instead of d_h rules out nearly as much, where the basis has
gathered enough in front; the shorter the rows of a block, the fewer coordinates do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .bounds import round_up_norms

SAMPLE = 1024
SHARES = (0.125, 0.25, 0.375, 0.5)
# What deciding on a length weighs, in the time of one multiplication of a product: a pair that
# survives is gathered and scored alone, which costs as much as tens of thousands of those.
SURVIVOR = 40_000


class Lengths:
    """Both sides' points at several lengths, the full one last."""

    def __init__(self, left: Tensor, right: Tensor, *, cut: bool) -> None:
        """cut: whether shorter ones are worth their making."""
        leading = sorted({int(left.shape[1] * share) for share in SHARES} - {0}) if cut else []
        self.sides = [(_short(left, n), _short(right, n)) for n in leading] + [(left, right)]

    def choose(self, rows: Tensor, columns: Tensor, floor: float) -> tuple[Tensor, Tensor]:
        """(left[rows], right) at the length that costs least, by how many of a sample survive it.

        Any length is correct; the full one leaves no pair that has to be looked at again.
        """
        if len(columns) <= 2 * SAMPLE:
            left, right = self.sides[-1]
            return left[rows], right
        sample = columns[:: -(-len(columns) // SAMPLE)]
        costs = [self._cost(side, rows, sample, floor) for side in self.sides[:-1]]
        costs.append(float(self.sides[-1][0].shape[1]))
        left, right = self.sides[costs.index(min(costs))]
        return left[rows], right

    def _cost(
        self, side: tuple[Tensor, Tensor], rows: Tensor, sample: Tensor, floor: float
    ) -> float:
        """Multiplications a pair, those for the pairs that survive included."""
        left, right = side
        share = float((left[rows] @ right[sample].T >= floor).float().mean())
        return left.shape[1] + SURVIVOR * share


def _short(points: Tensor, n_leading: int) -> Tensor:
    rest = torch.linalg.vector_norm(points[:, n_leading:], dim=1, keepdim=True)
    return torch.cat([points[:, :n_leading], round_up_norms(rest, points.shape[1])], dim=1)
