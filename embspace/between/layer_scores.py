"""Mean |ρ| between all vectors of two layers, summed tile by tile. [DAR] §5.1."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .correlations import Space
from .layer_vectors import Piece

TILE = 1 << 20  # correlations computed at a time
HELD = 1 << 29  # bytes of one model's vectors held while the other's pass by
DEAD = "all its vectors are zero or constant"
NOT_FINITE = "holds NaN or infinity"


@dataclass
class Scores:
    """Mean |ρ| between layers, and which layers have none."""

    sums: Float[Tensor, "L_a L_b"]
    counts_a: list[int]
    counts_b: list[int]
    sizes_a: list[int]
    sizes_b: list[int]
    broken_a: set[int]
    broken_b: set[int]

    @classmethod
    def empty(cls, n_a: int, n_b: int) -> "Scores":
        """Nothing summed yet, for so many layers."""
        sums = torch.zeros(n_a, n_b, dtype=torch.float64)
        return cls(sums, [0] * n_a, [0] * n_b, [0] * n_a, [0] * n_b, set(), set())

    @property
    def means(self) -> Float[Tensor, "L_a L_b"]:
        """Mean |ρ| over all pairs of vectors with a spread, 0 to 1; NaN for unmatched layers."""
        counts = torch.outer(*(torch.tensor(c).double() for c in (self.counts_a, self.counts_b)))
        means = torch.where(counts > 0, self.sums / counts.clamp_min(1), torch.nan)
        means[sorted(self.broken_a)] = torch.nan
        means[:, sorted(self.broken_b)] = torch.nan
        return means.clamp(max=1.0)

    @property
    def unmatched(self) -> tuple[dict[int, str], dict[int, str]]:
        """Layers of A and of B without a score, and why."""
        return (
            _reasons(self.counts_a, self.broken_a),
            _reasons(self.counts_b, self.broken_b),
        )

    @property
    def n_constant(self) -> tuple[int, int]:
        """Vectors of A and of B left out because they are zero or constant."""
        return (
            sum(self.sizes_a) - sum(self.counts_a) - _broken(self.sizes_a, self.broken_a),
            sum(self.sizes_b) - sum(self.counts_b) - _broken(self.sizes_b, self.broken_b),
        )

    def add(self, of_a: list[Piece], of_b: list[Piece], space: Space) -> Iterator[None]:
        """Sum |ρ| over all pairs of vectors, a yield for each pair of pieces.

        Vectors of A are held in slabs, those of B pass by; no table of pairs outlives its tile.
        """
        first = True
        for slab in _slabs(of_a, self._seen(of_a, space.a, "a")):
            for piece, unit in zip(of_b, self._seen(of_b, space.b, "b", first), strict=True):
                for layer, held in slab:
                    self.sums[layer, piece.layer] += absolute_sum(held, unit)
                    yield
            first = False

    def _seen(
        self,
        group: Iterable[Piece],
        turn: Callable[[Tensor], Tensor],
        side: str,
        count: bool = True,
    ) -> Iterator[Tensor]:
        """Unit vectors of the pieces; what cannot be used is counted and left out."""
        counts, sizes = getattr(self, f"counts_{side}"), getattr(self, f"sizes_{side}")
        for piece in group:
            x = piece.read()
            finite = bool(torch.isfinite(x).all())
            unit = turn(x.double()).to(x.dtype) if finite else x.new_empty(0, 1)
            if not finite:
                getattr(self, f"broken_{side}").add(piece.layer)
            if count:
                counts[piece.layer] += len(unit)
                sizes[piece.layer] += len(x)
            yield unit


def absolute_sum(x: Float[Tensor, "n r"], y: Float[Tensor, "m r"]) -> float:
    """Σ |x y^T| over all pairs of rows, tile by tile."""
    if not len(x) or not len(y):
        return 0.0
    step = max(1, TILE // len(y))
    buffer = x.new_empty(min(step, len(x)) * len(y))
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for rows in x.split(step):
        tile = torch.mm(rows, y.T, out=buffer[: len(rows) * len(y)].view(len(rows), len(y)))
        # by rows: a float32 sum over a whole tile loses digits
        total += torch.linalg.vector_norm(tile, 1, dim=1).double().sum()
    return float(total)


def _slabs(group: list[Piece], seen: Iterator[Tensor]) -> Iterator[list[tuple[int, Tensor]]]:
    """Unit vectors with their layers, as many at a time as may be held."""
    slab: list[tuple[int, Tensor]] = []
    size = 0
    for piece, unit in zip(group, seen, strict=True):
        slab.append((piece.layer, unit))
        size += unit.numel() * unit.element_size()
        if size >= HELD:
            yield slab
            slab, size = [], 0
    if slab:
        yield slab


def _reasons(counts: list[int], broken: set[int]) -> dict[int, str]:
    return {
        layer: NOT_FINITE if layer in broken else DEAD
        for layer, n in enumerate(counts)
        if layer in broken or not n
    }


def _broken(sizes: list[int], broken: set[int]) -> int:
    return sum(sizes[layer] for layer in broken)
