"""Where each architecture keeps its matrices: one short entry a family.

Names are those of transformers' checkpoints, below the block (or the base model). `a|b` lists
spellings, of which the first that a checkpoint holds is meant. A new family is usually a
`replace(LLAMA, …)` of one line; `embspace check` then proves it on a real model.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal


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
    shared_expert: str | None = None
    router: str | None = None
    # norms: before a sub-layer, on its output, or after the addition (post-norm blocks)
    attn_norm: str | None = None
    attn_post: str | None = None
    attn_add: str | None = None
    ff_norm: str | None = None
    ff_post: str | None = None
    ff_add: str | None = None
    norm: Literal["layer", "rms"] = "layer"
    gain_offset: float = 0.0  # Gemma stores gain - 1
    # conventions
    transposed: bool = False  # Conv1D stores (in, out)
    positions: Literal["learned", "rotary", "alibi", "relative"] = "learned"
    interleaved: bool = False  # rotary pairs (0,1), (2,3), … instead of halves
    scores_unscaled: bool = False
    causal: bool = True
    head: str = "lm_head"
    head_bias: str = "lm_head.bias"
    transform: Transform | None = None
    project_in: str | None = None  # narrower embedding -> stream
    project_out: str | None = None  # stream -> narrower embedding, before the head
    adapt: Callable[[Any], dict[str, Any]] = lambda config: {}
    generic: bool = False  # recognised by shape alone; needs a certificate


LLAMA = Family(
    types=("llama", "mistral", "qwen2", "smollm3", "granite"),
    base=("model.", "language_model.model.", "model.language_model.", ""),
    embedding="embed_tokens",
    block="layers.{l}",
    final_norm="norm",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    o="self_attn.o_proj",
    q_norm="self_attn.q_norm|self_attn.q_layernorm",
    k_norm="self_attn.k_norm|self_attn.k_layernorm",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
    attn_norm="input_layernorm",
    ff_norm="post_attention_layernorm",
    norm="rms",
    positions="rotary",
    head="lm_head|language_model.lm_head",
)
QWEN3 = replace(LLAMA, types=("qwen3",))
MIXTRAL = replace(
    LLAMA,
    types=("mixtral",),
    experts="block_sparse_moe.experts.{e}",
    expert_names=("w1", "w3", "w2"),
    router="mlp.gate|block_sparse_moe.gate",
)
QWEN2_MOE = replace(
    LLAMA,
    types=("qwen2_moe", "qwen3_moe"),
    experts="mlp.experts.{e}",
    shared_expert="mlp.shared_expert",
    router="mlp.gate",
)
GEMMA = replace(LLAMA, types=("gemma",), gain_offset=1.0)
GEMMA2 = replace(
    GEMMA,
    types=("gemma2", "gemma3_text", "gemma3"),
    attn_post="post_attention_layernorm",
    ff_norm="pre_feedforward_layernorm",
    ff_post="post_feedforward_layernorm",
)
OLMO = replace(LLAMA, types=("olmo",), norm="layer")
OLMO2 = replace(
    LLAMA,
    types=("olmo2", "olmo3"),
    attn_norm=None,
    attn_post="post_attention_layernorm",
    ff_norm=None,
    ff_post="post_feedforward_layernorm",
)
STABLELM = replace(
    LLAMA,
    types=("stablelm",),
    ff_norm="post_attention_layernorm|input_layernorm",
    norm="layer",
)
COHERE = replace(
    LLAMA,
    types=("cohere", "cohere2"),
    ff_norm="input_layernorm",
    norm="layer",
    interleaved=True,
)
STARCODER2 = replace(
    LLAMA, types=("starcoder2",), gate=None, up="mlp.c_fc", down="mlp.c_proj", norm="layer"
)
PHI = replace(
    LLAMA,
    types=("phi",),
    o="self_attn.dense",
    gate=None,
    up="mlp.fc1",
    down="mlp.fc2",
    final_norm="final_layernorm",
    ff_norm="input_layernorm",
    norm="layer",
)
PHI3 = replace(
    LLAMA, types=("phi3",), qkv="self_attn.qkv_proj", gate=None, gate_up="mlp.gate_up_proj"
)
GLM4 = replace(
    LLAMA,
    types=("glm4",),
    gate=None,
    gate_up="mlp.gate_up_proj",
    attn_post="post_self_attn_layernorm",
    ff_post="post_mlp_layernorm",
    interleaved=True,
)
GLM = replace(GLM4, types=("glm",), attn_post=None, ff_post=None)

GPT2 = Family(
    types=("gpt2",),
    base=("transformer.", ""),
    embedding="wte",
    block="h.{l}",
    final_norm="ln_f",
    qkv="attn.c_attn",
    o="attn.c_proj",
    up="mlp.c_fc",
    down="mlp.c_proj",
    attn_norm="ln_1",
    ff_norm="ln_2",
    transposed=True,
)
GPT_BIGCODE = replace(
    GPT2,
    types=("gpt_bigcode",),
    transposed=False,
    adapt=lambda config: {} if config.multi_query else {"fused": "groups"},
)
GPT_NEO = replace(
    GPT2,
    types=("gpt_neo",),
    qkv=None,
    q="attn.attention.q_proj",
    k="attn.attention.k_proj",
    v="attn.attention.v_proj",
    o="attn.attention.out_proj",
    transposed=False,
    scores_unscaled=True,
)
GPT_J = replace(
    GPT2,
    types=("gptj",),
    qkv=None,
    q="attn.q_proj",
    k="attn.k_proj",
    v="attn.v_proj",
    o="attn.out_proj",
    up="mlp.fc_in",
    down="mlp.fc_out",
    ff_norm="ln_1",
    transposed=False,
    positions="rotary",
    interleaved=True,
)
GPT_NEOX = Family(
    types=("gpt_neox",),
    base=("gpt_neox.", ""),
    embedding="embed_in",
    block="layers.{l}",
    final_norm="final_layer_norm",
    qkv="attention.query_key_value",
    fused="groups",
    o="attention.dense",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
    attn_norm="input_layernorm",
    ff_norm="post_attention_layernorm",
    positions="rotary",
    head="embed_out|lm_head",
)
BLOOM = replace(
    GPT_NEOX,
    types=("bloom",),
    base=("transformer.", ""),
    embedding="word_embeddings",
    block="h.{l}",
    final_norm="ln_f",
    qkv="self_attention.query_key_value",
    o="self_attention.dense",
    positions="alibi",
    head="lm_head",
)
FALCON = replace(
    BLOOM,
    types=("falcon",),
    attn_norm="ln_attn|input_layernorm",
    ff_norm="ln_mlp|post_attention_layernorm|ln_attn|input_layernorm",
    adapt=lambda config: {"positions": "alibi" if config.alibi else "rotary"},
)
MPT = replace(
    GPT2,
    types=("mpt",),
    block="blocks.{l}",
    final_norm="norm_f",
    qkv="attn.Wqkv",
    o="attn.out_proj",
    up="ffn.up_proj",
    down="ffn.down_proj",
    attn_norm="norm_1",
    ff_norm="norm_2",
    transposed=False,
    positions="alibi",
)


def _opt(config: Any) -> dict[str, Any]:
    """OPT-350m has its norms after the additions and none at the end."""
    if config.do_layer_norm_before:
        return {"final_norm": None} if config._remove_final_layer_norm else {}
    return {
        "attn_norm": None,
        "ff_norm": None,
        "final_norm": None,
        "attn_add": "self_attn_layer_norm",
        "ff_add": "final_layer_norm",
    }


OPT = Family(
    types=("opt",),
    base=("model.decoder.", "decoder.", ""),
    embedding="embed_tokens",
    block="layers.{l}",
    final_norm="final_layer_norm",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    o="self_attn.out_proj",
    up="fc1",
    down="fc2",
    attn_norm="self_attn_layer_norm",
    ff_norm="final_layer_norm",
    project_in="project_in",
    project_out="project_out",
    adapt=_opt,
)

BERT = Family(
    types=("bert",),
    base=("bert.", ""),
    embedding="embeddings.word_embeddings",
    block="encoder.layer.{l}",
    final_norm=None,
    q="attention.self.query",
    k="attention.self.key",
    v="attention.self.value",
    o="attention.output.dense",
    up="intermediate.dense",
    down="output.dense",
    attn_add="attention.output.LayerNorm",
    ff_add="output.LayerNorm",
    causal=False,
    head="cls.predictions.decoder",
    head_bias="cls.predictions.bias|cls.predictions.decoder.bias",
    transform=Transform(
        dense="cls.predictions.transform.dense", norm="cls.predictions.transform.LayerNorm"
    ),
)
ROBERTA = replace(
    BERT,
    types=("roberta", "xlm-roberta"),
    base=("roberta.", ""),
    head="lm_head.decoder",
    head_bias="lm_head.bias|lm_head.decoder.bias",
    transform=Transform(dense="lm_head.dense", norm="lm_head.layer_norm", activation="gelu"),
)
MPNET = replace(
    ROBERTA,
    types=("mpnet",),
    base=("mpnet.", ""),
    q="attention.attn.q",
    k="attention.attn.k",
    v="attention.attn.v",
    o="attention.attn.o",
    attn_add="attention.LayerNorm",
    positions="relative",
)
ELECTRA = replace(
    BERT,
    types=("electra",),
    base=("electra.", ""),
    project_in="embeddings_project",
    head="generator_lm_head",
    head_bias="generator_lm_head.bias",
    transform=Transform(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        activation="gelu",
    ),
)
ALBERT = replace(
    BERT,
    types=("albert",),
    base=("albert.", ""),
    block="encoder.albert_layer_groups.{group}.albert_layers.0",
    project_in="encoder.embedding_hidden_mapping_in",
    q="attention.query",
    k="attention.key",
    v="attention.value",
    o="attention.dense",
    up="ffn",
    down="ffn_output",
    attn_add="attention.LayerNorm",
    ff_add="full_layer_layer_norm",
    head="predictions.decoder",
    head_bias="predictions.bias|predictions.decoder.bias",
    transform=Transform(dense="predictions.dense", norm="predictions.LayerNorm"),
)
DISTILBERT = replace(
    BERT,
    types=("distilbert",),
    base=("distilbert.", ""),
    block="transformer.layer.{l}",
    q="attention.q_lin",
    k="attention.k_lin",
    v="attention.v_lin",
    o="attention.out_lin",
    up="ffn.lin1",
    down="ffn.lin2",
    attn_add="sa_layer_norm",
    ff_add="output_layer_norm",
    head="vocab_projector",
    head_bias="vocab_projector.bias",
    transform=Transform(dense="vocab_transform", norm="vocab_layer_norm"),
)
MODERNBERT = Family(
    types=("modernbert",),
    base=("model.", ""),
    embedding="embeddings.tok_embeddings",
    block="layers.{l}",
    final_norm="final_norm",
    qkv="attn.Wqkv",
    o="attn.Wo",
    gate_up="mlp.Wi",
    down="mlp.Wo",
    attn_norm="attn_norm",
    ff_norm="mlp_norm",
    positions="rotary",
    causal=False,
    head="decoder",
    head_bias="decoder.bias",
    transform=Transform(dense="head.dense", norm="head.norm"),
)

FAMILIES: tuple[Family, ...] = tuple(v for v in list(globals().values()) if isinstance(v, Family))
BY_TYPE = {model_type: family for family in FAMILIES for model_type in family.types}

# Shapes under which an unknown architecture may be read, each only with a certificate.
GENERIC = tuple(
    replace(family, types=(), generic=True)
    for family in (GEMMA2, OLMO2, LLAMA, PHI3, STARCODER2, PHI, GPT_NEOX, GPT2, BERT)
)
