"""The parts of a block recomputed from our split of its weights: what a certificate compares."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..weights import scales
from ..weights.feed_forward import FeedForward, activation, activation_function, activation_name
from ..weights.layout import spell
from ..weights.model import Model
from ..weights.norms import apply_norm, norm_at, norm_heads
from ..weights.rotary import rotate

ROWS = 16384  # rows of a table that are taken at a time


def projected(
    model: Model, layer: int, which: Literal["q", "k", "v"], x: Float[Tensor, "B T d"]
) -> Float[Tensor, "B T heads d_h"]:
    """x W + b of every head, clipped where the config clips."""
    attention = model.attention(layer)
    weight = {"q": attention.W_Q, "k": attention.W_K, "v": attention.W_V}[which]
    out = torch.einsum("btd,hdk->bthk", x, weight)
    bias, bound = attention.bias(which), scales.projection_clip(model)
    out = out if bias is None else out + bias
    return out if bound is None else out.clamp(-bound, bound)


def turned(
    model: Model,
    layer: int,
    which: Literal["q", "k"],
    x: Float[Tensor, "B T d"],
    positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B heads T d_h"]:
    """Queries or keys as they meet: normed where the block norms them, turned where it turns.

    positions: of the tokens; 0, 1, 2 … unless given.
    """
    heads = norm_heads(model, layer, which, projected(model, layer, which, x)).transpose(1, 2)
    if model.family.positions != "rotary":
        return heads
    if positions is None or positions.ndim != 2:
        positions = torch.arange(heads.shape[2], device=x.device)[None]
    return rotate(heads, model, layer, positions[:, None])


def to_query_heads(model: Model, layer: int, x: Float[Tensor, "B G T d_h"]) -> Tensor:
    """(B, H, T, d_h): for each query head the key/value head it reads."""
    attention = model.attention(layer)
    return x[:, [attention.kv_head(h) for h in range(model.n_heads)]]


def scores(model: Model, layer: int, q: Tensor, k: Tensor) -> Float[Tensor, "B H T T"]:
    """What the softmax takes, without masks and additive position biases."""
    out = q @ to_query_heads(model, layer, k).transpose(-1, -2)
    out = out * scales.score_scale(model, layer)
    cap = scales.score_cap(model)
    return out if cap is None else cap * torch.tanh(out / cap)


def attended(
    model: Model, layer: int, weights: Float[Tensor, "B H T T"], x: Float[Tensor, "B T d"]
) -> Float[Tensor, "B T d"]:
    """Sum over heads of A_h (x W_V + b_V) W_O, plus b_O once."""
    attention = model.attention(layer)
    values = to_query_heads(model, layer, projected(model, layer, "v", x).transpose(1, 2))
    out = torch.einsum("bhtk,hkd->btd", weights.to(values.dtype) @ values, attention.W_O)
    return out if attention.b_O is None else out + attention.b_O


def fed_forward(model: Model, ff: FeedForward, x: Float[Tensor, "... d"]) -> Tensor:
    """act(x K^T) V of one feed-forward layer or expert."""
    return _values_of(model, ff, ff.meets(x))


def _values_of(model: Model, ff: FeedForward, met: dict[str, Tensor]) -> Tensor:
    out = activation(model)(met) @ ff.values
    return out if ff.value_bias is None else out + ff.value_bias


def routed(
    model: Model, layer: int, x: Float[Tensor, "n d"], index: Tensor, weights: Tensor
) -> Float[Tensor, "n d"]:
    """The weighted sum of the experts chosen for each vector (index and weights: n × top)."""
    out = torch.zeros_like(x)
    for expert in index.unique().tolist():
        chosen, place = (index == expert).nonzero(as_tuple=True)
        ff = model.feed_forward(layer, expert)
        share = weights[chosen, place, None].to(x.dtype)
        out.index_add_(0, chosen, share * fed_forward(model, ff, x[chosen]))
    return out


def shared(model: Model, layer: int, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """The expert that every vector meets, times its gate where it has one."""
    out = fed_forward(model, model.feed_forward(layer, "shared"), x)
    path = f"{model.layout.block(layer)}{model.family.shared_expert}_gate.weight"
    gate = model.optional(path)
    return out if gate is None else out * torch.sigmoid(x @ gate.T)


def written(model: Model, layer: int, part: Literal["attn", "ff"], out: Tensor) -> Tensor:
    """What a part's output adds to the stream: through its post-norm, times the multiplier."""
    names = model.family.attn_post if part == "attn" else model.family.ff_post
    if names:
        out = apply_norm(model, out, model.writing_gain(layer, part))
    return out * scales.residual_scale(model)


def final_norm(model: Model, state: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """State L through the final norm, if the family has one."""
    if model.family.final_norm is None:
        return state
    path = spell(model.family.final_norm, model.layout.prefix, model.checkpoint)
    shift = model.optional(f"{path}.bias") if path else None
    return apply_norm(model, state, model.final_gain(), shift)


def prepared(model: Model, state: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """A state as E meets it: through the final norm and the head's transform, if it has them."""
    x = final_norm(model, state)
    return _transformed(model, x) if model.has_head else x


def logits(
    model: Model, state: Float[Tensor, "... d"], room: Float[Tensor, "... rows"] | None = None
) -> Float[Tensor, "... rows"]:
    """The whole prediction head on state L: norm, projection or transform, matrix, bias, cap.

    `room` holds the result, where given; no gradient passes through it then.
    """
    x = prepared(model, state)
    out_path = spell(model.family.project_out, model.layout.prefix, model.checkpoint)
    if out_path:
        x = x @ model.weight(f"{out_path}.weight").T
    return finished(model, against(x, model.head_table(), room))


def against(
    x: Float[Tensor, "... m"],
    table: Float[Tensor, "rows m"],
    room: Float[Tensor, "... rows"] | None = None,
) -> Float[Tensor, "... rows"]:
    """x table^T in the dtype of x, a block of rows at a time: a table may be larger than memory."""
    starts = range(0, len(table), ROWS)
    blocks = (table[i : i + ROWS].to(x.dtype).T for i in starts)
    if room is None:
        return torch.cat([x @ block for block in blocks], dim=-1)
    for i, block in zip(starts, blocks, strict=True):
        torch.mm(x, block, out=room[:, i : i + ROWS])
    return room


def finished(model: Model, products: Float[Tensor, "... rows"]) -> Float[Tensor, "... rows"]:
    """Head bias, logit scale and soft cap, in the order the models apply them; overwrites."""
    bias, scale, cap = model.head_bias, scales.logit_scale(model), scales.logit_cap(model)
    if bias is not None:
        products.add_(bias)
    if scale != 1:
        products.mul_(scale)
    if cap is None:
        return products
    bounded = products.div_(cap).tanh_()  # a gradient needs these as they are
    return bounded * cap if bounded.requires_grad else bounded.mul_(cap)


def _transformed(model: Model, x: Tensor) -> Tensor:
    """A masked model's dense layer, activation and norm, if it has them."""
    transform = model.family.transform
    if transform is None:
        return x
    weight, bias = model.linear(transform.dense)
    x = x @ weight.T if bias is None else x @ weight.T + bias
    name = transform.activation or activation_name(model.config)
    x = activation_function(name)(x)
    return norm_at(model, transform.norm, x)
