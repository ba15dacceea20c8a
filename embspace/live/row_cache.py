"""Keys and values kept while tokens are generated, for any of the sequences of a batch alone."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class FilledError(Exception):
    """Keys and values are stored, and nothing else of the block is wanted: leave it."""


@dataclass
class Slots:
    """Where the next keys and values go: tokens from `at` on, of some sequences (None: all).

    filling: a block is entered for its keys and values only; storing them ends it.
    """

    n: int
    room: int
    at: int = 0
    rows: Tensor | None = None
    filling: bool = False


class _Layer(CacheLayerMixin):
    """(n, heads, room, d_h) keys and values of one block, zero until written."""

    is_sliding = False  # all tokens are kept; masks say how far a block looks back

    def __init__(self, slots: Slots) -> None:
        super().__init__()
        self.slots = slots

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = (self._empty(x) for x in (key_states, value_states))
        self.is_initialized = True

    def _empty(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.slots.n, x.shape[1], self.slots.room, x.shape[3])

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store, and return all so far of the same sequences."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        slots = self.slots
        rows: Any = slice(None) if slots.rows is None else slots.rows
        end = slots.at + key_states.shape[2]
        self.keys[rows, :, slots.at : end] = key_states
        self.values[rows, :, slots.at : end] = value_states
        if slots.filling:
            raise FilledError
        return self.keys[rows, :, :end], self.values[rows, :, :end]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        n = query_length if isinstance(query_length, int) else len(query_length)
        return self.slots.at + n, 0

    def get_seq_length(self, *_: Any) -> int:
        return self.slots.at

    def get_max_length(self) -> int:
        return self.slots.room

    get_max_cache_shape = get_max_length  # the name of older versions


class RowCache(Cache):
    """A cache of all blocks that share `slots`."""

    def __init__(self, n_layers: int, slots: Slots) -> None:
        super().__init__(layers=[_Layer(slots) for _ in range(n_layers)])
        self.slots = slots

    @property
    def filled(self) -> bool:
        """Whether every block has stored something here."""
        return all(getattr(layer, "is_initialized", False) for layer in self.layers)


def tensor_of(rows: list[int], device: Any) -> Tensor:
    """Row numbers as an index."""
    return torch.tensor(rows, dtype=torch.long, device=device)
