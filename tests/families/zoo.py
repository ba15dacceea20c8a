"""Small random models of every family, in shapes that leave no two sizes equal by chance."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

WIDE = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 307}
TEXT = {**WIDE, "max_position_embeddings": 64, "initializer_range": 0.5, "intermediate_size": 37}
GROUPED = {**TEXT, "num_key_value_heads": 2}
OWN_HEAD = {**GROUPED, "head_dim": 10}
UNTIED = {"tie_word_embeddings": False}
GPT = {
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "vocab_size": 307,
    "n_positions": 64,
    "n_inner": 37,
    "initializer_range": 0.5,
}
BERT = {**TEXT, "pad_token_id": 0}
ROBERTA = {**TEXT, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MOE = {**GROUPED, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 11}

Build = Callable[[], Any]


def _of(kind: str, config: str, **options: Any) -> Build:
    return lambda: getattr(hf, kind)(getattr(hf, config)(**options))


def _causal(name: str, **options: Any) -> Build:
    return _of(f"{name}ForCausalLM", f"{name}Config", **options)


def _masked(name: str, **options: Any) -> Build:
    return _of(f"{name}ForMaskedLM", f"{name}Config", **options)


def _falcon(**options: Any) -> Build:
    sizes = {k: v for k, v in TEXT.items() if k not in ("intermediate_size",)}
    return _causal("Falcon", ffn_hidden_size=37, bias=True, **sizes, **options)


def _opt(**options: Any) -> Build:
    sizes = {k: v for k, v in TEXT.items() if k not in ("intermediate_size", "initializer_range")}
    return _causal(
        "OPT", ffn_dim=37, init_std=0.5, **{"word_embed_proj_dim": 48, **sizes, **options}
    )


GEMMA = {**OWN_HEAD, "pad_token_id": 0}
GEMMA23 = {**GEMMA, "query_pre_attn_scalar": 7, "sliding_window": 4, "layer_types": KINDS}


def gemma3_with_vision(**options: Any) -> Any:
    """Gemma 3 as published: a vision tower beside the text model."""
    text = {**GEMMA23, "num_hidden_layers": 3, **options}
    vision = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "image_size": 8,
        "patch_size": 4,
    }
    config = hf.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_id=300
    )
    return hf.Gemma3ForConditionalGeneration(config)


ZOO: dict[str, Build] = {
    "gpt2": _of("GPT2LMHeadModel", "GPT2Config", **GPT, **UNTIED),
    "gpt2 scaled by layer": _of(
        "GPT2LMHeadModel", "GPT2Config", **GPT, scale_attn_by_inverse_layer_idx=True
    ),
    "gpt2 unscaled": _of("GPT2LMHeadModel", "GPT2Config", **GPT, scale_attn_weights=False),
    "gpt-neo": _causal(
        "GPTNeo",
        hidden_size=48,
        num_layers=3,
        num_heads=6,
        vocab_size=307,
        intermediate_size=37,
        max_position_embeddings=64,
        window_size=4,
        attention_types=[[["global", "local", "local"], 1]],
        initializer_range=0.5,
        **UNTIED,
    ),
    "gpt-j": _causal("GPTJ", **GPT, rotary_dim=4),
    "gpt-neox": _causal("GPTNeoX", **TEXT, rotary_pct=0.5),
    "gpt-neox sequential": _causal("GPTNeoX", **TEXT, rotary_pct=1.0, use_parallel_residual=False),
    "opt": _opt(),
    "opt untied": _opt(**UNTIED),
    "opt 350m": _opt(do_layer_norm_before=False, word_embed_proj_dim=20),
    "opt narrow": _opt(word_embed_proj_dim=20, enable_bias=False),
    "opt without final norm": _opt(_remove_final_layer_norm=True),
    "opt without gains": _opt(layer_norm_elementwise_affine=False),
    "bloom": _causal(
        "Bloom", hidden_size=48, n_layer=3, n_head=6, vocab_size=307, initializer_range=0.5
    ),
    "falcon multi-query": _falcon(multi_query=True, new_decoder_architecture=False),
    "falcon per head": _falcon(multi_query=False, new_decoder_architecture=False),
    "falcon per group": _falcon(new_decoder_architecture=True, num_kv_heads=2),
    "falcon one norm": _falcon(
        new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1
    ),
    "falcon alibi": _falcon(multi_query=False, new_decoder_architecture=False, alibi=True),
    "falcon sequential": _falcon(
        multi_query=True, new_decoder_architecture=False, parallel_attn=False, **UNTIED
    ),
    "phi": _causal("Phi", **GROUPED, partial_rotary_factor=0.5),
    "phi with q/k norms": _causal("Phi", **TEXT, qk_layernorm=True),
    "phi3": _causal("Phi3", **GROUPED, pad_token_id=0, **UNTIED),
    "phi3 longrope": _causal(
        "Phi3",
        **GROUPED,
        pad_token_id=0,
        original_max_position_embeddings=8,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0, 1.5, 2.0, 3.0],
            "long_factor": [2.0, 3.0, 5.0, 9.0],
        },
    ),
    "llama": _causal("Llama", **OWN_HEAD, attention_bias=True, mlp_bias=True, **UNTIED),
    "llama tied": _causal("Llama", **GROUPED, tie_word_embeddings=True),
    "llama linear": _causal(
        "Llama",
        **GROUPED,
        rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0},
    ),
    "llama dynamic": _causal(
        "Llama",
        **{**GROUPED, "max_position_embeddings": 9},
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0},
    ),
    "llama 3": _causal(
        "Llama",
        **GROUPED,
        rope_parameters={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
            "rope_theta": 10000.0,
        },
    ),
    "llama yarn": _causal(
        "Llama",
        **GROUPED,
        rope_parameters={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "rope_theta": 10000.0,
        },
    ),
    "mistral": _causal("Mistral", **OWN_HEAD, sliding_window=4),
    "mixtral": _causal("Mixtral", **GROUPED, num_local_experts=5, num_experts_per_tok=2),
    "qwen2": _causal("Qwen2", **GROUPED),
    "qwen2-moe": _causal(
        "Qwen2Moe", **MOE, shared_expert_intermediate_size=13, mlp_only_layers=[1]
    ),
    "qwen3": _causal("Qwen3", **OWN_HEAD),
    "qwen3-moe": _causal("Qwen3Moe", **MOE, head_dim=10, mlp_only_layers=[2]),
    "gemma": _causal("Gemma", **GEMMA),
    "gemma2": _causal("Gemma2", **GEMMA23, final_logit_softcapping=3.0, attn_logit_softcapping=2.0),
    "gemma2 uncapped": _causal(
        "Gemma2", **GEMMA23, final_logit_softcapping=None, attn_logit_softcapping=None
    ),
    "gemma3": _of("Gemma3ForCausalLM", "Gemma3TextConfig", **GEMMA23),
    "gemma3 capped": _of(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        **GEMMA23,
        final_logit_softcapping=3.0,
        attn_logit_softcapping=2.0,
    ),
    "gemma3 dynamic": _of(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        **{**GEMMA23, "max_position_embeddings": 9},
        rope_parameters={
            "full_attention": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    ),
    "gemma3 with vision": gemma3_with_vision,
    "olmo": _causal("Olmo", **GROUPED, clip_qkv=1.5),
    "olmo2": _causal("Olmo2", **GROUPED),
    "olmo3": _causal("Olmo3", **GROUPED, sliding_window=4, layer_types=KINDS),
    "stablelm": _causal("StableLm", **GROUPED, use_qkv_bias=True),
    "stablelm parallel": _causal(
        "StableLm", **GROUPED, use_parallel_residual=True, qk_layernorm=True
    ),
    "bert": _masked("Bert", **BERT),
    "bert untied": _masked("Bert", **BERT, **UNTIED),
    "roberta": _masked("Roberta", **ROBERTA),
    "xlm-roberta": _masked("XLMRoberta", **ROBERTA),
    "distilbert": _masked(
        "DistilBert",
        dim=48,
        n_layers=3,
        n_heads=6,
        hidden_dim=37,
        vocab_size=307,
        max_position_embeddings=64,
        initializer_range=0.5,
    ),
    "albert": _masked("Albert", **BERT, embedding_size=20, num_hidden_groups=1),
    "albert groups": _masked("Albert", **BERT, embedding_size=20, num_hidden_groups=3),
    "electra": _masked("Electra", **BERT, embedding_size=20),
    "electra square": _masked("Electra", **BERT, embedding_size=48),
    "mpnet": _masked("MPNet", **ROBERTA),
    "modernbert": _masked(
        "ModernBert",
        **TEXT,
        initializer_cutoff_factor=3.0,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        local_attention=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
        norm_bias=True,
        attention_bias=True,
        mlp_bias=True,
        classifier_activation="silu",
        classifier_bias=True,
    ),
    "smollm3": _causal("SmolLM3", **GROUPED, no_rope_layers=[1, 0, 1], pad_token_id=0),
    "granite": _causal(
        "Granite",
        **GROUPED,
        embedding_multiplier=3.0,
        residual_multiplier=0.3,
        attention_multiplier=0.05,
        logits_scaling=5.0,
    ),
    "cohere": _causal("Cohere", **GROUPED, use_qk_norm=True, logit_scale=0.3),
    "cohere2": _causal("Cohere2", **OWN_HEAD, sliding_window=4, layer_types=KINDS, logit_scale=0.3),
    "starcoder2": _causal("Starcoder2", **GROUPED),
    "gpt-bigcode": _causal("GPTBigCode", **GPT, multi_query=True),
    "gpt-bigcode per head": _causal("GPTBigCode", **GPT, multi_query=False),
    "mpt": _causal("Mpt", d_model=48, n_layers=3, n_heads=6, vocab_size=307, initializer_range=0.5),
    "mpt scaled": lambda: hf.MptForCausalLM(
        hf.MptConfig(
            d_model=48,
            n_layers=3,
            n_heads=6,
            vocab_size=307,
            initializer_range=0.5,
            attn_config={"softmax_scale": 0.2, "clip_qkv": 1.5},
            logit_scale=0.5,  # which transformers leaves unused
        )
    ),
    "gpt-oss": _causal(
        "GptOss",
        **{
            **OWN_HEAD,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "sliding_window": 4,
            "layer_types": KINDS,
            "attention_bias": True,
        },
    ),
    "glm": _causal("Glm", **OWN_HEAD, pad_token_id=0, attention_bias=True),
    "glm4": _causal("Glm4", **OWN_HEAD, pad_token_id=0, attention_bias=True),
}


def build(name: str, *, seed: int = 0) -> Any:
    """A model of the zoo with every gain, shift and bias made random."""
    torch.manual_seed(seed)
    return randomised(ZOO[name](), seed=seed).eval()


def randomised(model: Any, *, seed: int = 0) -> Any:
    """Fill every one-dimensional parameter, norm and bias, which default to 1 and 0, at random."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1 or "norm" in name or name.endswith("bias"):
                weight.copy_(0.6 + 0.5 * torch.randn(weight.shape, generator=random))
    return model
