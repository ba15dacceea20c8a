"""Settings of the families we claim that few published models use: read right, or refused."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from embspace.errors import CertificateError, EmbspaceError, ModelError
from embspace.live.capture import capture_all
from embspace.live.certificate import certify, require
from embspace.live.recorder import PARTS
from embspace.live.running import run
from embspace.read.reader import load
from embspace.text.passages import Passage

from .zoo import (
    BERT,
    GEMMA,
    GEMMA23,
    GPT,
    GROUPED,
    KINDS,
    MOE,
    OWN_HEAD,
    ROBERTA,
    TEXT,
    UNTIED,
    Build,
    _causal,
    _falcon,
    _masked,
    _of,
    _opt,
    gemma3_with_vision,
    randomised,
)


def _gpt2(**options: Any) -> Build:
    return _of("GPT2LMHeadModel", "GPT2Config", **{**GPT, **options})


def _llama(**options: Any) -> Build:
    return _causal("Llama", **{**GROUPED, **options})


def _yarn(**options: Any) -> dict[str, Any]:
    shared = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    return {**shared, "rope_theta": 100.0, **options}


SCALED = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0}
PLAIN = {"rope_type": "default", "rope_theta": 50.0}
BY_KIND = {"full_attention": SCALED, "sliding_attention": PLAIN}
FALCON = {k: v for k, v in TEXT.items() if k != "intermediate_size"} | {"ffn_hidden_size": 37}
SIZES = {"hidden_size": 48, "n_layer": 3, "n_head": 6, "vocab_size": 307, "initializer_range": 0.5}
MPT = {"d_model": 48, "n_layers": 3, "n_heads": 6, "vocab_size": 307, "initializer_range": 0.5}
NEO = {
    **{"hidden_size": 48, "num_layers": 3, "num_heads": 6, "vocab_size": 307},
    **{"max_position_embeddings": 64, "window_size": 4, "initializer_range": 0.5},
}
MODERN = {
    **{**TEXT, "initializer_cutoff_factor": 3.0, "local_attention": 8, "pad_token_id": 0},
    **{"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
}
GRANITE = {
    **{"embedding_multiplier": 3.0, "residual_multiplier": 0.3, "attention_multiplier": 0.05},
    **{"logits_scaling": 5.0, "attention_bias": True, "mlp_bias": True},
}

READ: dict[str, Build] = {
    # sizes
    "gpt2 without a feed-forward width": _gpt2(n_inner=None),
    "gpt2 of odd heads": _gpt2(n_embd=45, n_head=9),
    "gpt2 of one head": _gpt2(n_head=1),
    "gpt2 of one block": _gpt2(n_layer=1),
    "llama of one key/value head": _llama(num_key_value_heads=1, hidden_act="relu"),
    "llama of narrow heads": _llama(head_dim=4),
    "llama of wide heads": _llama(head_dim=22),
    "mistral of wide heads, no window": _causal(
        "Mistral", **{**OWN_HEAD, "head_dim": 14}, sliding_window=None
    ),
    "bloom of nine heads": _causal("Bloom", **{**SIZES, "hidden_size": 45, "n_head": 9}),
    "mpt of nine heads": _causal("Mpt", **{**MPT, "d_model": 45, "n_heads": 9}),
    "mpt of another expansion": _causal("Mpt", **MPT, expansion_ratio=3),
    # activations and epsilons
    "gpt2 with relu": _gpt2(activation_function="relu"),
    "gpt2 of a large epsilon": _gpt2(layer_norm_epsilon=0.3),
    "gpt-neo of local layers only, relu": _causal(
        "GPTNeo",
        **NEO,
        intermediate_size=None,
        attention_types=[[["local"], 3]],
        activation_function="relu",
    ),
    "llama of a large epsilon, another gelu": _llama(
        rms_norm_eps=0.5, hidden_act="gelu_pytorch_tanh"
    ),
    "falcon with relu": _falcon(
        multi_query=True, new_decoder_architecture=False, activation="relu"
    ),
    "opt with gelu": _opt(activation_function="gelu"),
    "gemma with the exact gelu": _causal("Gemma", **GEMMA, hidden_act="gelu"),
    "bert of another gelu and epsilon": _masked(
        "Bert", **BERT, hidden_act="gelu_new", layer_norm_eps=0.2
    ),
    # biases
    "gpt-neox without biases": _causal("GPTNeoX", **TEXT, attention_bias=False, hidden_act="relu"),
    "gpt-j tied with its bias": _causal("GPTJ", **GPT, rotary_dim=4, tie_word_embeddings=True),
    "opt without biases, untied": _opt(enable_bias=False, **UNTIED),
    "opt 350m without biases": _opt(
        do_layer_norm_before=False, word_embed_proj_dim=20, enable_bias=False
    ),
    "qwen3 with biases": _causal("Qwen3", **OWN_HEAD, attention_bias=True),
    "olmo with biases": _causal("Olmo", **GROUPED, attention_bias=True),
    "olmo2 with biases, one key/value head": _causal(
        "Olmo2", **{**GROUPED, "num_key_value_heads": 1}, attention_bias=True
    ),
    "starcoder2 without biases": _causal("Starcoder2", **GROUPED, use_bias=False, sliding_window=3),
    "gemma2 with biases": _causal("Gemma2", **GEMMA23, attention_bias=True),
    "modernbert without a decoder bias": _masked("ModernBert", **MODERN, decoder_bias=False),
    # heads
    "gpt-neox tied": _causal("GPTNeoX", **TEXT, tie_word_embeddings=True),
    "gemma2 untied": _causal("Gemma2", **GEMMA23, **UNTIED),
    "granite tied, with biases": _causal("Granite", **GROUPED, **GRANITE, tie_word_embeddings=True),
    "roberta untied": _masked("Roberta", **ROBERTA, **UNTIED),
    "electra untied": _masked("Electra", **BERT, embedding_size=20, **UNTIED),
    "modernbert untied": _masked("ModernBert", **MODERN, **UNTIED),
    "albert as wide as its embedding": _masked(
        "Albert", **BERT, embedding_size=48, num_hidden_groups=1
    ),
    # attention
    "gpt2 with upcast attention": _gpt2(reorder_and_upcast_attn=True),
    "bigcode unscaled, softmax as it comes": _causal(
        "GPTBigCode",
        **GPT,
        multi_query=True,
        scale_attn_weights=False,
        attention_softmax_in_fp32=False,
        scale_attention_softmax_in_fp32=False,
    ),
    "falcon alibi, multi-query": _falcon(
        multi_query=True, new_decoder_architecture=False, alibi=True
    ),
    "falcon sequential, per head": _falcon(
        multi_query=False, new_decoder_architecture=False, parallel_attn=False
    ),
    "cohere without query/key norms": _causal(
        "Cohere", **GROUPED, use_qk_norm=False, logit_scale=2.0, attention_bias=True
    ),
    "stablelm with query/key norms": _causal("StableLm", **GROUPED, qk_layernorm=True),
    "qwen2 with a window from layer 1 on": _causal(
        "Qwen2", **GROUPED, use_sliding_window=True, sliding_window=3, max_window_layers=1
    ),
    "llama that looks both ways": _llama(is_causal=False),
    "gemma3 with vision and a cap, which only its text class applies": (
        lambda: gemma3_with_vision(final_logit_softcapping=3.0)
    ),
    "gemma3 that looks both ways": _of(
        "Gemma3ForCausalLM", "Gemma3TextConfig", **GEMMA23, use_bidirectional_attention=True
    ),
    "distilbert of sinusoids": _masked(
        "DistilBert",
        **{"dim": 48, "n_layers": 3, "n_heads": 6, "hidden_dim": 37, "vocab_size": 307},
        max_position_embeddings=64,
        initializer_range=0.5,
        sinusoidal_pos_embds=True,
        activation="relu",
    ),
    "bert that feeds forward in chunks": _masked("Bert", **BERT, chunk_size_feed_forward=1),
    # rotation
    "llama of another base": _llama(rope_parameters={"rope_type": "default", "rope_theta": 7.0}),
    "llama yarn of its own factors": _llama(
        rope_parameters=_yarn(attention_factor=1.7, beta_fast=4, beta_slow=2)
    ),
    "llama yarn untruncated": _llama(rope_parameters=_yarn(truncate=False)),
    "phi turned whole": _causal("Phi", **TEXT, partial_rotary_factor=1.0, hidden_act="relu"),
    "phi3 turned in part": _causal(
        "Phi3", **GROUPED, pad_token_id=0, partial_rotary_factor=0.5, sliding_window=3
    ),
    "glm turned whole": _causal("Glm", **OWN_HEAD, pad_token_id=0, partial_rotary_factor=1.0),
    "smollm3 not turned at all": _causal(
        "SmolLM3", **GROUPED, no_rope_layers=[0, 0, 0], pad_token_id=0, attention_bias=True
    ),
    "gemma3 scaled on its full layers": _of(
        "Gemma3ForCausalLM", "Gemma3TextConfig", **GEMMA23, rope_parameters=BY_KIND
    ),
    "modernbert of two bases": _masked(
        "ModernBert",
        **MODERN,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters=BY_KIND,
    ),
    "olmo3 yarn": _causal(
        "Olmo3", **GROUPED, sliding_window=4, layer_types=KINDS, rope_parameters=_yarn()
    ),
    "stablelm yarn in part": _causal(
        "StableLm", **GROUPED, rope_parameters=_yarn(partial_rotary_factor=0.5)
    ),
    "phi3 longrope in part": _causal(
        "Phi3",
        **GROUPED,
        pad_token_id=0,
        original_max_position_embeddings=8,
        rope_parameters={
            **{"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
            **{"short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0]},
        },
    ),
    "falcon dynamic": _causal(
        "Falcon",
        **{**FALCON, "max_position_embeddings": 9},
        bias=True,
        new_decoder_architecture=True,
        num_kv_heads=2,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0},
    ),
    "falcon without biases": _causal(
        "Falcon", **FALCON, bias=False, multi_query=True, new_decoder_architecture=False
    ),
    # mixtures
    "mixtral of one expert a token": _causal(
        "Mixtral", **GROUPED, num_local_experts=3, num_experts_per_tok=1, sliding_window=3
    ),
    "qwen2-moe of every other layer, normed shares": _causal(
        "Qwen2Moe",
        **MOE,
        shared_expert_intermediate_size=13,
        norm_topk_prob=True,
        decoder_sparse_step=2,
        qkv_bias=False,
    ),
    "qwen3-moe of normed shares": _causal(
        "Qwen3Moe", **MOE, head_dim=10, norm_topk_prob=True, attention_bias=True
    ),
    "gpt-oss without biases, tight clamp": _causal(
        "GptOss",
        **OWN_HEAD,
        num_local_experts=3,
        num_experts_per_tok=1,
        sliding_window=4,
        layer_types=KINDS,
        attention_bias=False,
        swiglu_limit=0.5,
    ),
}


def saved_as(build: Build, folder: Any) -> Any:
    torch.manual_seed(0)
    randomised(build()).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", READ)
def test_a_rare_setting_is_read_as_the_live_model_computes(tmp_path, name: str):
    certificate = certify(load(saved_as(READ[name], tmp_path)))
    assert certificate.passed, certificate.failures


def test_parts_that_run_in_chunks_are_taken_whole(tmp_path):
    model = load(saved_as(READ["bert that feeds forward in chunks"], tmp_path))
    passes = [Passage(tuple(range(5, 16)), (0, 3, 10), 0), Passage((9, 8, 7), (2,), 1)]
    states = capture_all(run(model), passes, parts=PARTS)
    assert all(x.shape == y.shape == (4, 48) for x, y in states.parts.values())
    ff = model.feed_forward(1)
    x, y = states.parts[1, "ff"]
    met = torch.nn.functional.gelu(x @ ff.keys["up"].T + ff.key_biases["up"])
    torch.testing.assert_close(met @ ff.values + ff.value_bias, y, rtol=1e-4, atol=1e-4)


REFUSED: dict[str, tuple[Build, str]] = {
    "bloom whose stream is normed": (
        _causal("Bloom", **SIZES, apply_residual_connection_post_layernorm=True),
        "residual stream",
    ),
    "llama said to turn in part, which it does not": (
        _llama(
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 7.0,
                "partial_rotary_factor": 0.5,
            }
        ),
        "queries, keys, values",
    ),
    "albert of two layers in a group": (
        _masked("Albert", **BERT, embedding_size=20, num_hidden_groups=1, inner_group_num=2),
        "inner_group_num",
    ),
    "bloom whose projections are computed in slices": (
        _causal("Bloom", **SIZES, pretraining_tp=2, slow_but_exact=True),
        "attention output",
    ),
    "bert as a decoder": (
        _of("BertLMHeadModel", "BertConfig", **BERT, is_decoder=True),
        "set up as a decoder",
    ),
    "ernie as a decoder, known by its shape": (
        _of("ErnieForCausalLM", "ErnieConfig", **BERT, is_decoder=True),
        "this ernie is set up as a decoder",
    ),
    "roberta as a decoder": (
        _of("RobertaForCausalLM", "RobertaConfig", **ROBERTA, is_decoder=True),
        "set up as a decoder",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_right_is_refused_with_its_reason(tmp_path, name: str):
    build, reason = REFUSED[name]
    with pytest.raises((ModelError, CertificateError), match=reason):
        require(load(saved_as(build, tmp_path)))


def test_tensors_that_older_files_carry_along_do_no_harm(saved, tmp_path):
    """Masks, position ids and rotary frequencies were once saved with the weights."""
    for name, extra in {
        "gpt2": {
            "transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64, dtype=torch.uint8),
            "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
        },
        "llama": {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(5)},
        "bert": {"bert.embeddings.position_ids": torch.arange(64)[None]},
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_bytes((saved(name) / "config.json").read_bytes())
        stored = load_file(saved(name) / "model.safetensors")
        save_file(stored | extra, folder / "model.safetensors", metadata={"format": "pt"})
        assert certify(load(folder), layers="first").passed, name


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "bloom"])
def test_names_without_the_base_models_prefix_are_understood(saved, zoo, tmp_path, name: str):
    """As openai-community/gpt2 stores them: `h.0…`, not `transformer.h.0…`; the head is tied."""
    live = zoo(name)
    base = live.base_model
    state = {key: tensor.clone() for key, tensor in base.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((saved(name) / "config.json").read_bytes())
    model = load(tmp_path)
    assert torch.equal(model.attention(1).W_O, load(saved(name)).attention(1).W_O)
    assert torch.equal(model.embedding("input"), base.get_input_embeddings().weight)


@pytest.mark.parametrize("value", [-1, None, 10**6], ids=str)
def test_a_padding_id_that_is_no_row_pads_with_another(saved, tmp_path, value):
    folder = tmp_path / "model"
    folder.mkdir()
    config = json.loads((saved("llama") / "config.json").read_text()) | {"pad_token_id": value}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((saved("llama") / "model.safetensors").read_bytes())
    passes = [Passage((5, 6, 7, 8), (3,), 0), Passage((9,), (0,), 1)]
    try:
        ours = capture_all(run(load(folder)), passes).stacked()
    except EmbspaceError as error:  # transformers itself refuses some
        assert "pad" in str(error).lower()
        return
    assert torch.equal(ours, capture_all(run(load(saved("llama"))), passes).stacked())


@pytest.mark.parametrize("norm", ["centred", "fold", "", None, 1])
def test_centring_and_other_ways_with_norms_are_not_offered(tiny_gpt2, norm):
    import embspace

    model = embspace.load(tiny_gpt2)
    with pytest.raises(EmbspaceError, match="norm"):
        model.heads[0, 0].circuit("vo", norm=norm).top_pairs(1)


def test_an_end_of_text_that_is_a_list_of_ids_is_one_of_them(saved, tmp_path):
    config = json.loads((saved("llama") / "config.json").read_text()) | {"eos_token_id": [2, 7]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(
        (saved("llama") / "model.safetensors").read_bytes()
    )
    assert certify(load(tmp_path), layers="first").passed
