"""Norms as functions of a vector: with or without their gain, of the stream and of heads."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .layout import spell
from .weights import Weights

EPS_NAMES = (
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "norm_eps",
    "norm_epsilon",
)


def epsilon(model: Weights) -> float:
    """The small number under the root: the config's, else what the family's code says."""
    for name in EPS_NAMES:
        value = getattr(model.config, name, None)
        if value is not None:
            return float(value)
    return model.family.eps


def standardise(
    x: Float[Tensor, "... d"], kind: Literal["layer", "rms"], eps: float
) -> Float[Tensor, "... d"]:
    """The norm without gain and shift: mean removed ("layer" only), root mean square made 1."""
    if kind == "layer":
        x = x - x.mean(dim=-1, keepdim=True)
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)


def apply_norm(
    model: Weights,
    x: Float[Tensor, "... d"],
    gain: Float[Tensor, "d"] | None,
    shift: Float[Tensor, "d"] | None = None,
) -> Float[Tensor, "... d"]:
    """A norm of the model's kind with a given gain and shift; None means 1 and 0."""
    out = standardise(x, model.family.norm, epsilon(model))
    out = out if gain is None else out * gain
    return out if shift is None else out + shift


def norm_at(model: Weights, path: str | None, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """The norm whose gain and shift lie at a module path; None is a norm without either."""
    gain, shift = (model.optional(path and f"{path}.{end}") for end in ("weight", "bias"))
    return apply_norm(model, x, None if gain is None else gain + model.family.gain_offset, shift)


def norm_heads(
    model: Weights, layer: int, which: Literal["q", "k"], x: Float[Tensor, "... heads d_h"]
) -> Float[Tensor, "... heads d_h"]:
    """Queries or keys through their norm, if the block has one.

    The gain's shape tells which vectors are normed: d_h (each head, shared gain), heads × d_h
    (each head, own gain), or heads · d_h (all heads as one vector: OLMo 2).
    """
    path = head_norm_path(model, layer, which)
    if path is None:
        return x
    gain = _head_gain(model, path)
    shift = model.optional(f"{path}.bias")
    whole = gain.ndim == 1 and gain.numel() == x.shape[-2:].numel() and x.shape[-2] > 1
    vectors = x.flatten(-2) if whole else x
    out = standardise(vectors, model.family.norm, epsilon(model)) * gain
    return (out if shift is None else out + shift).reshape(x.shape)


def head_norm_path(model: Weights, layer: int, which: Literal["q", "k"]) -> str | None:
    """Module path of the norm of queries or keys, or None."""
    names = model.family.q_norm if which == "q" else model.family.k_norm
    block = model.layout.block(layer)
    for name in (names or "").split("|"):
        if f"{block}{name}.norms.0.weight" in model.checkpoint:
            return block + name
    return spell(names, block, model.checkpoint)


def _head_gain(model: Weights, path: str) -> Tensor:
    if f"{path}.weight" in model.checkpoint:
        return model.weight(f"{path}.weight") + model.family.gain_offset
    return torch.stack([model.weight(name) for name in _numbered(model, f"{path}.norms.")])


def _numbered(model: Weights, prefix: str) -> list[str]:
    """`prefix`0.weight, `prefix`1.weight … as far as the checkpoint holds them (StableLM)."""
    names: list[str] = []
    while f"{prefix}{len(names)}.weight" in model.checkpoint:
        names.append(f"{prefix}{len(names)}.weight")
    return names


def shift_of(model: Weights, layer: int, names: str | None) -> Any:
    """Shift (bias) of a norm of a block, or None."""
    path = spell(names, model.layout.block(layer), model.checkpoint)
    return model.optional(f"{path}.bias") if path else None
