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
HITS = 1
SHARES = (0.125, 0.25, 0.5)


class Lengths:
    """Both sides' points at several lengths, the full one last."""

    def __init__(self, left: Tensor, right: Tensor, *, cut: bool) -> None:
        """cut: whether shorter ones are worth their making."""
        leading = sorted({int(left.shape[1] * share) for share in SHARES} - {0}) if cut else []
        self.sides = [(_short(left, n), _short(right, n)) for n in leading] + [(left, right)]

    def choose(self, rows: Tensor, columns: Tensor, floor: float) -> tuple[Tensor, Tensor]:
        """The shortest (left[rows], right) that lets hardly a pair of a sample reach the floor."""
        sample = columns[:: -(-len(columns) // SAMPLE)]
        for left, right in self.sides[:-1] if len(columns) > 2 * SAMPLE else []:
            points = left[rows]
            if int((points @ right[sample].T >= floor).sum()) <= HITS:
                return points, right
        return self.sides[-1][0][rows], self.sides[-1][1]


def _short(points: Tensor, n_leading: int) -> Tensor:
    rest = torch.linalg.vector_norm(points[:, n_leading:], dim=1, keepdim=True)
    return torch.cat([points[:, :n_leading], round_up_norms(rest, points.shape[1])], dim=1)
