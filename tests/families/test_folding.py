"""Gains of norms: where they fold, into what, and where they cannot."""

import pytest
import torch

from embspace.errors import ModelError
from embspace.models.load import load
from embspace.models.model import fold, reading, writing

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
