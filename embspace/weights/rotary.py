"""Rotary positions: how queries and keys turn with their position, from the config alone."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import ModelError
from .weights import Weights

BY_LENGTH = ("dynamic", "longrope")  # scalings that depend on the length of the text


def rotation(
    model: Weights, layer: int, position: int, *, length: int | None = None
) -> Float[Tensor, "d_h d_h"]:
    """R(n), so that the score of a query at n and a key at m is (q R(n)) · (k R(m)).

    Row vectors. R(n) R(m)^T depends on n - m only. `length` is the length of the text, which
    some scalings depend on (dynamic, longrope); at least position + 1.
    Raises ModelError where positions are not rotary.
    """
    eye = torch.eye(model.d_head, dtype=model.dtype, device=model.device)
    return rotate(eye, model, layer, position, length=length)


def rotate(
    x: Float[Tensor, "... d_h"],
    model: Weights,
    layer: int,
    position: int | Int[Tensor, "..."],
    *,
    length: int | None = None,
) -> Float[Tensor, "... d_h"]:
    """Queries or keys turned as at `position`, one number or a tensor that fits x[..., 0].

    Raises ModelError where positions are not rotary.
    """
    if model.family.positions != "rotary":
        raise ModelError(
            f"{model.name} has {model.family.positions} positions, not rotary ones: "
            "q · k does not depend on the distance."
        )
    positions = torch.as_tensor(position, device=x.device)
    found = frequencies(model, layer, length=length or int(positions.max()) + 1)
    if found is None:
        return x
    inverse, scale = found
    # phases in float32, as transformers computes them
    angle = positions.float()[..., None] * inverse.to(x.device)
    cos, sin = ((f(angle) * scale).to(x.dtype) for f in (torch.cos, torch.sin))
    return _turn(x, cos, sin, interleaved=model.family.interleaved)


def frequencies(
    model: Weights, layer: int, *, length: int | None = None
) -> tuple[Float[Tensor, "pairs"], float] | None:
    """Angle a position adds to each pair of coordinates, and the factor on cos and sin.

    None for a block without rotation (SmolLM3, Cohere 2). Scaled kinds (linear, dynamic, llama3,
    yarn, longrope …) come from transformers' own functions.
    """
    if not _layer_rotates(model, layer):
        return None
    config = model.config
    if getattr(config, "rotary_dim", None) is not None or model.family.fixed_base:
        return _plain(model.family.fixed_base or 10000.0, config.rotary_dim or model.d_head), 1.0
    kind, parameters = _parameters(config, layer)
    if parameters is None:
        return None
    name = parameters.get("rope_type", "default")
    if name == "default":
        width = int(model.d_head * parameters.get("partial_rotary_factor", 1.0))
        return _plain(parameters["rope_theta"], width), 1.0
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if name not in ROPE_INIT_FUNCTIONS:
        raise ModelError(
            f"rotary positions of kind {name!r} are not known: give a newer transformers."
        )
    named = {} if kind is None else {"layer_type": kind}
    inverse, scale = ROPE_INIT_FUNCTIONS[name](config, torch.device("cpu"), seq_len=length, **named)
    return inverse, float(scale)


def alike_up_to(config: Any) -> int | None:
    """The longest text whose tokens turn alike whatever comes after them; None where all do.

    Dynamic and long scaling turn a whole text by its length, once it is longer than they were made
    for; where kinds of layers have their own rotation, one of them is enough.
    """
    given = getattr(config, "rope_parameters", None) or {}
    lengths = [
        int(n)
        for rope in (given, *given.values())
        if isinstance(rope, dict) and rope.get("rope_type") in BY_LENGTH
        for n in (rope.get("original_max_position_embeddings"), config.max_position_embeddings)
        if n
    ]
    return min(lengths, default=None)


def forget_lengths(base: nn.Module) -> None:
    """Undo what dynamic scaling keeps of the longest text that a live model has read so far."""
    for module in base.modules():
        scalings = getattr(module, "rope_type", None)
        named = scalings.items() if isinstance(scalings, dict) else [(None, scalings)]
        for kind, scaling in named:
            if scaling == "dynamic":
                prefix = "" if kind is None else f"{kind}_"
                own: Any = getattr(module, f"{prefix}original_inv_freq")
                setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)
                getattr(module, f"{prefix}inv_freq").copy_(own)


def layer_kind(config: Any, layer: int) -> str | None:
    """The layer's entry in `layer_types` ("full_attention", "sliding_attention" …), or None."""
    kinds = getattr(config, "layer_types", None)
    return kinds[layer] if kinds else None


def _layer_rotates(model: Weights, layer: int) -> bool:
    flags = getattr(model.config, "no_rope_layers", None)  # 0 where there is none, despite the name
    if flags is not None and not flags[layer]:
        return False
    sliding_only = model.family.rotates_sliding_only
    return not sliding_only or layer_kind(model.config, layer) == "sliding_attention"


def _parameters(config: Any, layer: int) -> tuple[str | None, dict[str, Any] | None]:
    """(layer kind, parameters) where each kind has its own, else (None, the shared ones)."""
    shared = getattr(config, "rope_parameters", None)
    if not shared:
        raise ModelError("the config gives no rope_parameters for its rotary positions.")
    kind = layer_kind(config, layer)
    if kind in shared:
        return kind, shared[kind]
    return None, shared


def _plain(base: float, width: int) -> Tensor:
    return 1.0 / (base ** (torch.arange(0, width, 2).float() / width))


def _turn(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """The first 2 · pairs coordinates turned; pairs are (0, 1), (2, 3) … or the two halves."""
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        out = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        out = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    return torch.cat([out, rest], dim=-1)
