"""Gains of norms: where they fold, into what, and where they cannot."""

import pytest
import torch

from embspace.errors import ModelError
from embspace.read.circuits import HeadCircuit
from embspace.read.reader import load
from embspace.read.vectors import FeedForwardReading, sub_heads
from embspace.weights.model import fold, reading, writing

POST_NORM = [
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "mpnet",
    "albert",
    "electra",
    "opt 350m",
]


@pytest.mark.parametrize("name", POST_NORM)
def test_post_norm_blocks_refuse_to_fold_and_say_why(saved, name: str):
    model = load(saved(name))
    for part in ("attn", "ff"):
        with pytest.raises(ModelError, match="post-norm"):
            reading(model, 0, part, "folded")
        with pytest.raises(ModelError, match="post-norm"):
            writing(model, 0, part, "folded")
        assert reading(model, 0, part, "raw") is None and writing(model, 0, part, "raw") is None


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "gpt2"])
def test_the_reading_gain_multiplies_gate_and_up_alike(saved, zoo, name: str):
    model = load(saved(name))
    gain = reading(model, 1, "ff", "folded")
    assert gain is not None
    live = zoo(name)
    module = live.transformer.h[1].ln_2 if name == "gpt2" else live.model.layers[1]
    weight = module.weight if name == "gpt2" else module.post_attention_layernorm.weight
    assert torch.equal(gain, weight)
    for rows in model.feed_forward(1).keys.values():
        assert torch.equal(fold(rows, gain), rows * weight)


@pytest.mark.parametrize("name", ["gemma", "gemma2", "gemma3"])
def test_gemmas_gain_is_one_plus_the_stored_weight(saved, zoo, name: str):
    model, live = load(saved(name)), zoo(name).model
    expected = 1 + live.layers[0].input_layernorm.weight
    assert torch.allclose(model.reading_gain(0, "attn"), expected)
    assert torch.allclose(model.final_gain(), 1 + live.norm.weight)


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "olmo2", "glm4"])
def test_a_post_norm_on_the_output_multiplies_what_a_part_writes(saved, name: str):
    model = load(saved(name))
    for part in ("attn", "ff"):
        own, final = model.writing_gain(0, part), model.final_gain()
        assert own is not None and final is not None
        assert torch.allclose(writing(model, 0, part, "folded"), own * final)


READINGS = {  # live norms: before attention, before the feed-forward, after each, at the end
    "llama": ("input_layernorm", "post_attention_layernorm", None, None),
    "mistral": ("input_layernorm", "post_attention_layernorm", None, None),
    "qwen2": ("input_layernorm", "post_attention_layernorm", None, None),
    "gemma2": (
        "input_layernorm",
        "pre_feedforward_layernorm",
        "post_attention_layernorm",
        "post_feedforward_layernorm",
    ),
}
READINGS["gemma3"] = READINGS["gemma2"]


@pytest.mark.parametrize("name", READINGS)
def test_every_reading_folds_the_norms_it_goes_through_and_no_others(saved, zoo, name: str):
    model, base = load(saved(name)), zoo(name).model
    one = 1.0 if name.startswith("gemma") else 0.0
    block = base.layers[1]
    gains = [
        one + block.get_submodule(path).weight.detach() if path else torch.ones(48)
        for path in READINGS[name]
    ]
    attn, ff, attn_out, ff_out = gains
    final = one + base.norm.weight.detach()
    d_h, group = model.d_head, model.n_heads // model.n_kv_heads
    h = 4
    q, o = slice(h * d_h, (h + 1) * d_h), block.self_attn.o_proj.weight.detach()
    kv = slice(h // group * d_h, (h // group + 1) * d_h)
    W = {
        "q": block.self_attn.q_proj.weight.detach()[q] * attn,
        "k": block.self_attn.k_proj.weight.detach()[kv] * attn,
        "v": block.self_attn.v_proj.weight.detach()[kv] * attn,
        "o": o[:, q].T * attn_out * final,
        "gate": block.mlp.gate_proj.weight.detach() * ff,
        "up": block.mlp.up_proj.weight.detach() * ff,
        "value": block.mlp.down_proj.weight.detach().T * ff_out * final,
    }
    for part in ("q", "k", "v", "o"):
        torch.testing.assert_close(sub_heads(model, 1, h, part, "folded").vectors, W[part])
    folded, raw = (FeedForwardReading(model, 1, norm=norm).groups() for norm in ("folded", "raw"))
    for part, vectors in folded.items():
        torch.testing.assert_close(vectors.vectors, W[part])
        assert not torch.allclose(vectors.vectors, raw[part].vectors)
        assert (vectors.norm, raw[part].norm) == ("folded", "raw")
    for circuit, (a, b) in {"vo": ("v", "o"), "qk": ("q", "k")}.items():
        left, right = HeadCircuit(model, 1, h, circuit, norm="folded").matrices
        torch.testing.assert_close(left @ right.T, W[a].T @ W[b], rtol=1e-4, atol=1e-4)


def test_without_post_norms_only_the_final_gain_multiplies_what_is_written(saved):
    model = load(saved("llama"))
    assert model.writing_gain(0, "attn") is None
    assert torch.equal(writing(model, 0, "attn", "folded"), model.final_gain())


def test_a_missing_gain_counts_as_one(saved):
    model = load(saved("opt without gains"))
    assert reading(model, 0, "attn", "folded") is None
    assert writing(model, 0, "attn", "folded") is None
    rows = model.feed_forward(0).values
    assert fold(rows, None) is rows


def test_the_final_gain_does_not_fold_through_a_dense_transform(saved):
    """ModernBERT: between its final norm and E lies a dense layer, so E does not read the norm."""
    model = load(saved("modernbert"))
    assert writing(model, 0, "attn", "folded") is None


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_folding_happens_in_the_arithmetic_dtype_whatever_is_stored(zoo, tmp_path, name: str):
    live = zoo(name)
    half = type(live)(live.config).to(torch.bfloat16)
    half.load_state_dict(live.state_dict())
    half.save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.provenance["stored_dtype"] == "bfloat16" and model.provenance["dtype"] == "float32"
    gain = model.reading_gain(0, "attn")
    rows = model.feed_forward(0).values
    assert gain is not None and gain.dtype == rows.dtype == torch.float32
    # 1 + w is formed after the upcast: no rounding of the sum to eight bits
    offset = model.family.gain_offset
    stored = model.checkpoint.tensor("model.layers.0.input_layernorm.weight")
    assert torch.equal(gain, stored.float() + offset)
