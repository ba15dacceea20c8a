"""Decoders: where each family keeps its matrices."""

from dataclasses import replace
from typing import Any

from .family import Family

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
)
QWEN2_MOE = replace(
    LLAMA,
    types=("qwen2_moe", "qwen3_moe"),
    experts="mlp.experts.{e}",
    shared_expert="mlp.shared_expert",
)
GEMMA = replace(LLAMA, types=("gemma",), gain_offset=1.0, embedding_scaled=True)
GEMMA2 = replace(
    GEMMA,
    types=("gemma2",),
    attn_post="post_attention_layernorm",
    ff_norm="pre_feedforward_layernorm",
    ff_post="post_feedforward_layernorm",
    caps_scores=True,
)
GEMMA3 = replace(GEMMA2, types=("gemma3_text", "gemma3"), caps_scores=False)
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
    types=("cohere",),
    ff_norm="input_layernorm",
    norm="layer",
    interleaved=True,
)
COHERE2 = replace(COHERE, types=("cohere2",), rotates_sliding_only=True)
GPT_OSS = replace(
    LLAMA,
    types=("gpt_oss",),
    experts="mlp.experts.{e}",
    expert_stack="interleaved",
    activation="gpt_oss",
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
    fixed_base=10000.0,
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
    embed_norm="word_embeddings_layernorm",
    block="h.{l}",
    final_norm="ln_f",
    qkv="self_attention.query_key_value",
    o="self_attention.dense",
    positions="alibi",
    activation="gelu_pytorch_tanh",
    head="lm_head",
)
FALCON = replace(
    BLOOM,
    types=("falcon",),
    embed_norm=None,
    activation=None,
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
    activation="gelu",
    scales_logits=False,
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
