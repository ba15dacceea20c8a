"""Attention weights of one block, one matrix a head, whatever way a family stores them."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from ..checking import index
from ..errors import ModelError
from .layout import Layout
from .weights import Weights


class Attention:
    """W_Q, W_K, W_V, W_O of one block, one matrix a head, split as its family lays them out."""

    def __init__(self, model: Weights, layer: int) -> None:
        self.model, self.layer = model, layer
        self._block = model.layout.block(layer)

    @property
    def W_Q(self) -> Float[Tensor, "H d d_h"]:
        """Query matrices of all heads."""
        return self._heads("q")

    @property
    def W_K(self) -> Float[Tensor, "G d d_h"]:
        """Key matrices of all key/value heads."""
        return self._heads("k")

    @property
    def W_V(self) -> Float[Tensor, "G d d_h"]:
        """Value matrices of all key/value heads."""
        return self._heads("v")

    @property
    def W_O(self) -> Float[Tensor, "H d_h d"]:
        """Output matrices of all heads."""
        sizes = self.model.layout
        weight, _ = self.model.linear(self._block + self.model.family.o)
        return weight.T.reshape(sizes.n_heads, sizes.d_head, sizes.d)

    @property
    def b_O(self) -> Float[Tensor, "d"] | None:
        """Bias of the output matrix, added once."""
        return self.model.optional(f"{self._block}{self.model.family.o}.bias")

    def bias(self, which: Literal["q", "k", "v"]) -> Float[Tensor, "heads d_h"] | None:
        """Bias of a projection by head, or None."""
        _, bias = self._rows(which)
        return None if bias is None else bias.reshape(-1, self.model.d_head)

    def kv_head(self, head: int) -> int:
        """The key/value head that a query head reads: h // (H / G)."""
        sizes = self.model.layout
        head = index(head, sizes.n_heads, "head", error=ModelError)
        return head // (sizes.n_heads // sizes.n_kv_heads)

    def _heads(self, which: Literal["q", "k", "v"]) -> Tensor:
        weight, _ = self._rows(which)
        return weight.reshape(-1, self.model.d_head, self.model.d).transpose(1, 2)

    def _rows(self, which: Literal["q", "k", "v"]) -> tuple[Tensor, Tensor | None]:
        """Rows (heads · d_h, d) of one projection and their biases."""
        family, sizes = self.model.family, self.model.layout
        if not family.qkv:
            return self.model.linear(self._block + getattr(family, which))
        weight, bias = self.model.linear(self._block + family.qkv)
        split = split_slabs if family.fused == "slabs" else split_groups
        return split(weight, which, sizes), None if bias is None else split(bias, which, sizes)


def split_slabs(rows: Tensor, which: str, sizes: Layout) -> Tensor:
    """One projection of a fused matrix that stacks all queries, all keys, all values."""
    n_q, n_kv = sizes.n_heads * sizes.d_head, sizes.n_kv_heads * sizes.d_head
    start, stop = {"q": (0, n_q), "k": (n_q, n_q + n_kv), "v": (n_q + n_kv, n_q + 2 * n_kv)}[which]
    return rows[start:stop]


def split_groups(rows: Tensor, which: str, sizes: Layout) -> Tensor:
    """One projection of a fused matrix that keeps each group's query heads, key, value together.

    NeoX and BLOOM: a group is a head. Falcon: a key/value head with its query heads.
    """
    per_group = sizes.n_heads // sizes.n_kv_heads
    grouped = rows.reshape(sizes.n_kv_heads, per_group + 2, sizes.d_head, *rows.shape[1:])
    part = {"q": grouped[:, :-2], "k": grouped[:, -2:-1], "v": grouped[:, -1:]}[which]
    return part.reshape(-1, *rows.shape[1:])
