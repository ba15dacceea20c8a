"""The matrix that carries states of one model into another's stream, through the vocabulary."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import one_of
from ..errors import EmbspaceError
from ..weights.vocabulary import VocabularySpace
from .shared_tokens import SharedTokens

BLOCK = 8192
Kind = Literal["pinv", "transpose"]
KINDS: tuple[Kind, ...] = ("pinv", "transpose")


@dataclass(frozen=True)
class Kernel:
    """K (d_A × d_B), float64, and how well the shared tokens determine it.

    rank: of E_B over the shared tokens, d_B when they span the stream; condition: ratio of its
    largest to its smallest singular value above rounding.
    """

    matrix: Float[Tensor, "d_A d_B"]
    kind: Kind
    rank: int
    condition: float

    def to_dict(self) -> dict[str, Any]:
        """Kind, shape, rank and condition."""
        return {
            "kind": self.kind,
            "shape": list(self.matrix.shape),
            "rank": self.rank,
            "condition": self.condition,
        }


def kernel(
    a: VocabularySpace,
    b: VocabularySpace,
    shared: SharedTokens,
    kind: Kind = "pinv",
    *,
    order: Tensor | None = None,
) -> Kernel:
    """K = E_A E_B^+, over the tokens that both vocabularies name. [DAR] §5.2.

    E_B^+ = E_B^T (E_B E_B^T)^+, so that K = (E_A E_B^T)(E_B E_B^T)^+ needs no matrix as large as
    the vocabulary. `transpose`: K = d_B / ‖E_B‖² · E_A E_B^T, which is the same where E_B is white
    (E_B E_B^T a multiple of I). `order` pairs the tokens otherwise: a control.
    Raises EmbspaceError for an unknown kind, or where E_B is zero.
    """
    one_of(kind, KINDS, "kernel")
    ids_b = shared.ids_b if order is None else shared.ids_b[order]
    cross = _product(a.table, shared.ids_a, b.table, ids_b)
    gram = _product(b.table, ids_b, b.table, ids_b)
    values, vectors = torch.linalg.eigh(gram)
    kept = values > values.max() * len(gram) * torch.finfo(torch.float64).eps
    if not bool(values.max() > 0):
        raise EmbspaceError(f"the embedding of {b.name} is zero on all shared tokens.")
    condition = float((values.max() / values[kept].min()).sqrt())
    if kind == "pinv":
        basis = vectors[:, kept]
        matrix = cross @ basis / values[kept] @ basis.T
    else:
        matrix = cross * (len(gram) / gram.trace())
    return Kernel(matrix, kind, int(kept.sum()), condition)


def turned(matrix: Float[Tensor, "d_A d_B"], seed: int) -> Float[Tensor, "d_A d_B"]:
    """A random matrix with the same singular values: directions drawn evenly. A control."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (_rotation(n, generator).to(matrix) for n in matrix.shape)
    return left @ matrix @ right


def shuffled(n: int, seed: int) -> Tensor:
    """A random order of the shared tokens: a control that keeps both embeddings as they are."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _rotation(n: int, generator: torch.Generator) -> Tensor:
    """An orthogonal matrix, evenly distributed (QR of a Gaussian, signs made positive)."""
    q, r = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()


def _product(left: Tensor, left_ids: Tensor, right: Tensor, right_ids: Tensor) -> Tensor:
    """Σ over tokens of e^T f in float64, a block of rows at a time."""
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)
    for start in range(0, len(left_ids), BLOCK):
        part = slice(start, start + BLOCK)
        x, y = (t[ids[part].to(t.device)] for t, ids in ((left, left_ids), (right, right_ids)))
        total += x.double().cpu().T @ y.double().cpu()
    return total
