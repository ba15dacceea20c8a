"""What the package must know of an architecture: the shape of one family entry.

Names are those of transformers' checkpoints, below the block (or the base model). `a|b` lists
spellings, of which the first that a checkpoint holds is meant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

DENSE_NAMES = ("gate_proj", "up_proj", "down_proj")
STACK = "mlp.experts."  # where transformers 5 keeps the (experts, …) tensors of a mixture


@dataclass(frozen=True, kw_only=True)
class Transform:
    """The dense layer, activation and norm that a masked model puts before its decoder."""

    dense: str
    norm: str
    activation: str | None = None  # None: the model's own hidden activation


@dataclass(frozen=True, kw_only=True)
class Family:
    """Names and conventions of one architecture; `adapt` changes them by what a config says."""

    types: tuple[str, ...]  # transformers' `model_type`
    base: tuple[str, ...]  # prefixes the base model may carry
    embedding: str
    embed_norm: str | None = None  # norm between the embedding and the first block
    block: str  # with {l} (and {group} where layers share weights)
    final_norm: str | None
    # attention: separate q, k, v or fused
    q: str = ""
    k: str = ""
    v: str = ""
    qkv: str | None = None
    fused: Literal["slabs", "groups"] = "slabs"  # all q, k, v; or per group: its q heads, k, v
    o: str
    q_norm: str | None = None
    k_norm: str | None = None
    # feed-forward
    up: str = ""
    gate: str | None = None
    gate_up: str | None = None  # gate rows first, then up rows
    down: str
    experts: str | None = None  # with {e}: one sub-layer an expert
    expert_names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    expert_stack: Literal["rows", "interleaved"] = "rows"  # of tensors that hold all experts
    shared_expert: str | None = None
    activation: str | None = None  # None: the config's
    # norms: before a sub-layer, on its output, or after the addition (post-norm blocks)
    attn_norm: str | None = None
    attn_post: str | None = None
    attn_add: str | None = None
    ff_norm: str | None = None
    ff_post: str | None = None
    ff_add: str | None = None
    norm: Literal["layer", "rms"] = "layer"
    eps: float = 1e-5  # where the config names none
    gain_offset: float = 0.0  # Gemma stores gain - 1
    bare_first: bool = False  # the first block's attention reads the stream without a norm
    # conventions
    transposed: bool = False  # Conv1D stores (in, out)
    positions: Literal["learned", "rotary", "alibi", "relative"] = "learned"
    interleaved: bool = False  # rotary pairs (0,1), (2,3), … instead of halves
    fixed_base: float | None = None  # rotary base where the config names none
    rotates_sliding_only: bool = False  # layers with full attention have no positions
    scores_unscaled: bool = False
    caps_scores: bool = False  # obeys the config's attn_logit_softcapping (Gemma 3 does not)
    scales_logits: bool = True  # obeys the config's scale and cap of logits (MPT does not)
    embedding_scaled: bool = False  # rows are multiplied by √d on their way to state 0
    causal: bool = True  # predicts the next token; else it fills masks
    both_ways: bool = False  # a decoder whose tokens also see what comes after them
    head: str = "lm_head"
    head_bias: str = "lm_head.bias"
    transform: Transform | None = None
    project_in: str | None = None  # narrower embedding -> stream
    project_out: str | None = None  # stream -> narrower embedding, before the head
    adapt: Callable[[Any], dict[str, Any]] = lambda config: {}
    unproved_head: str | None = None  # why its prediction head is not used
    generic: bool = False  # recognised by shape alone; needs a certificate
