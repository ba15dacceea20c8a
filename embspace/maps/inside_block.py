"""The stream inside a block: after its attention, before its feed-forward; and how to decode it."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ModelError
from ..live import rebuilt as replay
from ..live.capture import States
from ..live.recorder import Part
from ..weights.layout import spell
from ..weights.norms import norm_at
from .maps import Maps

if TYPE_CHECKING:
    from ..weights.model import Model


def parts_inside(model: "Model") -> tuple[Part, ...]:
    """The sub-modules whose inputs are needed. Raises ModelError for parallel blocks."""
    _source(model)
    return ("ff_norm", "ff")


def inside(model: "Model", states: States, layer: int) -> Float[Tensor, "n d"]:
    """The stream of a block after its attention was added. Raises ModelError where there is none.

    The input of the feed-forward's norm; of the feed-forward itself where it reads the stream.
    """
    ends = states.parts.get((layer, _source(model)))
    if ends is None:
        raise ModelError(f"block {layer} of {model.name} shows no stream inside.")
    x = ends[0]
    if layer in states.layers and torch.equal(x, states.layers[layer]):
        raise ModelError(
            f"block {layer} of {model.name} runs attention and feed-forward side by side: there is "
            "no stream between them."
        )
    return x


def passed_on(model: "Model", states: States, layer: int, submodules: Maps) -> Float[Tensor, "n d"]:
    """State layer + 1 as the block's linear feed-forward map would make it from the stream inside.

    m + post(ff.in A), with A the sub-module's map; then the norm of post-norm blocks.
    """
    met = states.parts[layer, "ff"][0]
    out = submodules.apply(met, f"{layer}.ff.in", f"{layer}.ff.out")
    return added(model, inside(model, states, layer), layer, out)


def added(
    model: "Model", stream: Float[Tensor, "n d"], layer: int, out: Float[Tensor, "n d"]
) -> Float[Tensor, "n d"]:
    """What a feed-forward puts out, added to the stream inside a block as the block adds it."""
    x = stream + replay.written(model, layer, "ff", out)
    if model.family.ff_add is None:
        return x
    path = spell(model.family.ff_add, model.layout.block(layer), model.checkpoint)
    return norm_at(model, path, x)


def _source(model: "Model") -> Part:
    family = model.family
    if family.attn_add or (family.attn_post and not family.ff_norm):
        return "ff"  # post-norm blocks, and OLMo 2: the feed-forward reads the stream itself
    block = model.layout.block(0)
    before, meets = (
        spell(names, block, model.checkpoint) for names in (family.ff_norm, family.attn_norm)
    )
    stored = before is not None or meets is not None  # OLMo's norms have nothing to store
    if stored and before is None and family.ff_norm:
        raise ModelError(
            f"{model.name} lacks {block}{family.ff_norm}.weight, a norm of its blocks."
        )
    if before == meets if stored else family.ff_norm == family.attn_norm:
        raise _parallel(model)
    return "ff_norm"


def _parallel(model: "Model") -> ModelError:
    return ModelError(
        f"{model.name} computes attention and feed-forward side by side, so there is no state "
        "between them to decode."
    )
