"""What aligning two models will need, before it starts."""

from collections.abc import Iterable

from ..memory import Needs, flops_per_second
from ..read.forecast import LABEL, SLACK
from ..weights.model import Model
from .correlations import BLOCK
from .layer_scores import HELD, TILE
from .layer_vectors import chosen_groups, pieces

DOUBLE = 8  # bytes


def needs_of_alignment(a: Model, b: Model, groups: str | Iterable[str] | None = None) -> Needs:
    """Memory and time to align two models; raises EmbspaceError for groups that they lack.

    Private: a slab of A's vectors, a piece of either in float64, the d × d kernels. Time: the
    products of all pairs of vectors in both spaces, and the kernels' sums over the vocabulary.
    """
    names, _ = chosen_groups(a, b, groups)
    V = max(len(a.vocabulary), len(b.vocabulary))
    d, wide = min(a.d, b.d), a.d + b.d
    flops, largest = 4.0 * V * wide**2, 0
    for name in names:
        rows = [(len(pieces(m, name)), len(pieces(m, name)[0].read())) for m in (a, b)]
        largest = max(largest, *(n for _, n in rows))
        pairs = rows[0][0] * rows[0][1] * rows[1][0] * rows[1][1]
        flops += (2.0 if a.d == b.d else 1.0) * 2.0 * pairs * d
    width = DOUBLE * (4 * wide * wide + 4 * largest * max(a.d, b.d) + 4 * BLOCK * wide)
    private = width + 2 * HELD + 4 * TILE + 2 * V * LABEL + SLACK
    tables = [m.vocabulary.table for m in dict.fromkeys((a, b))]
    mapped = sum(table.numel() * table.element_size() for table in tables)
    return Needs(private, mapped, flops / flops_per_second())
