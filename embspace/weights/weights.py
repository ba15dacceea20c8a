"""Weights: the named tensors of one checkpoint, its sizes, and the dtype they are handed out in."""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .family import Family
from .layout import Layout
from .tensors import Checkpoint


class Weights(ABC):
    """What attention, feed-forward layers, norms and scales are read from.

    Tensors come in `dtype` (float32 unless asked otherwise) on `device`. Axis names:
    embspace.notation.
    """

    def __init__(
        self,
        name: str,
        config: Any,
        layout: Layout,
        checkpoint: Checkpoint,
        *,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        self.name, self.config, self.layout, self.checkpoint = name, config, layout, checkpoint
        self.dtype, self.device = dtype, torch.device(device)

    @abstractmethod
    def require_proof(self) -> None:
        """Prove the reading, or take its kept proof, before the first number; once a model."""

    @property
    def folder(self) -> Path:
        """The folder that the weights are read from."""
        return self.checkpoint.folder

    @property
    def family(self) -> Family:
        """Names and conventions of the architecture, as resolved for this config."""
        return self.layout.family

    @property
    def d(self) -> int:
        """Width of the residual stream."""
        return self.layout.d

    @property
    def n_layers(self) -> int:
        """L, the number of blocks."""
        return self.layout.n_layers

    @property
    def n_heads(self) -> int:
        """H, query heads of a layer."""
        return self.layout.n_heads

    @property
    def n_kv_heads(self) -> int:
        """G, key/value heads of a layer."""
        return self.layout.n_kv_heads

    @property
    def d_head(self) -> int:
        """d_h, the width of a head."""
        return self.layout.d_head

    @cached_property
    def stored_dtype(self) -> torch.dtype:
        """The dtype of the weights on disk."""
        return self.checkpoint.tensor(f"{self.layout.block(0)}{self.family.o}.weight").dtype

    def weight(self, name: str) -> Tensor:
        """A tensor of the checkpoint in this model's dtype on its device."""
        self.require_proof()
        return self.checkpoint.tensor(name).to(self.device, self.dtype)

    def optional(self, name: str | None) -> Tensor | None:
        """A tensor of the checkpoint, or None where there is none of that name."""
        self.require_proof()
        return self.weight(name) if name and name in self.checkpoint else None

    def linear(self, path: str) -> tuple[Float[Tensor, "out in"], Tensor | None]:
        """Weight (out, in), whatever the layer class stores, and bias of a linear map."""
        weight = self.weight(f"{path}.weight")
        weight = weight.T if self.family.transposed else weight
        return weight, self.optional(f"{path}.bias")
