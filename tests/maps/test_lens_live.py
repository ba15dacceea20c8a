"""The lens on a live model that the caller made: its mode, its dtype, and whose weights it has."""

import pytest
import torch
import transformers as hf
from transformers import AutoModelForCausalLM

import embspace
from embspace.errors import ModelError
from embspace.live.attach import attach

PROMPT = "The cats and the dogs saw"


@pytest.fixture
def module(tiny_gpt2):
    return AutoModelForCausalLM.from_pretrained(tiny_gpt2, attn_implementation="eager")


@pytest.mark.parametrize("generate", [0, 4])
def test_a_live_model_in_training_is_read_without_dropout_and_stays_in_training(
    tiny_gpt2, module, generate
):
    model = embspace.load(str(tiny_gpt2))
    module.train()
    assert module.transformer.drop.p > 0
    found = embspace.lens(
        model, PROMPT, "id", generate=generate, running=attach(model, module), k=5
    )
    alone = embspace.lens(model, PROMPT, "id", generate=generate, k=5)
    assert found.ids == alone.ids
    mine, its = found.grids["id"].p, alone.grids["id"].p
    torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-6)
    assert module.training and module.transformer.drop.training


def test_the_dtype_of_the_live_model_is_recorded_and_said(tiny_gpt2, module):
    model = embspace.load(str(tiny_gpt2))
    found = embspace.lens(model, PROMPT, "id", running=attach(model, module.to(torch.bfloat16)))
    assert found.settings["run_dtype"] == "bfloat16"
    assert any("ran in bfloat16" in note for note in found.notes)
    alone = embspace.lens(model, PROMPT, "id")
    assert alone.settings["run_dtype"] == "float32"
    assert not any("ran in" in note for note in alone.notes)


def test_a_live_model_of_another_checkpoint_is_refused(tiny_gpt2, tiny_llama, module):
    running = attach(embspace.load(str(tiny_gpt2)), module)
    with pytest.raises(ModelError, match="attach it to the model that is read"):
        embspace.lens(embspace.load(str(tiny_llama)), PROMPT, "id", running=running)


def test_exaone4_shows_its_stream_inside_as_olmo2_does(tmp_path, byte_tokenizer):
    """It has no norm before its sub-modules, though its config's kin do."""
    config = hf.Exaone4Config(
        **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 304},
        **{"num_key_value_heads": 3, "intermediate_size": 17, "head_dim": 8, "sliding_window": 4},
        pad_token_id=0,
    )
    torch.manual_seed(0)
    hf.Exaone4ForCausalLM(config).save_pretrained(tmp_path)
    byte_tokenizer.save_pretrained(tmp_path)
    model = embspace.load(str(tmp_path))
    assert model.family.attn_norm is None and model.family.ff_norm is None
    found = embspace.lens(model, PROMPT, "id", inside=True)
    assert found.grids["id"].rows == ("0", "0.mid", "1", "1.mid", "2")
