"""What a reading leaves out, or takes from elsewhere, is said with the model."""

from typing import Any

import pytest
import torch
import transformers as hf

from embspace.errors import ModelError
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.decoding import Head
from embspace.read.reader import load
from embspace.text.passages import Passage

from .test_options import MODERN, saved_as
from .zoo import BERT, GPT, GROUPED, ROBERTA, _of

NORMED_QUERIES = ("qwen3", "qwen3-moe", "gemma3", "olmo2", "phi with q/k norms", "cohere")
NORMED_QUERIES += ("stablelm parallel", "cohere2", "gpt-neox", "llama")


def said(model: Any) -> str:
    return " ".join(model.notes)


@pytest.mark.parametrize("name", NORMED_QUERIES)
def test_rotary_models_say_whether_queries_and_keys_are_normed_besides(saved, zoo, name: str):
    normed = any("q_norm" in path or "q_layernorm" in path for path, _ in zoo(name).named_modules())
    notes = said(load(saved(name)))
    assert "relative distance 0" in notes
    assert ("without the query/key norms" in notes) == normed


@pytest.mark.parametrize("name", ["olmo", "mpt scaled", "mpt", "olmo2"])
def test_clipped_queries_are_told(saved, name: str):
    assert ("clipped at ±1.5" in said(load(saved(name)))) == (name in ("olmo", "mpt scaled"))


DISTIL = {"dim": 48, "n_layers": 3, "n_heads": 6, "hidden_dim": 37, "vocab_size": 307}
CLASSIFIERS = {
    "Bert": BERT,
    "Roberta": ROBERTA,
    "DistilBert": {**DISTIL, "max_position_embeddings": 64},
    "Albert": {**BERT, "embedding_size": 20},
    "Electra": {**BERT, "embedding_size": 20},
    "MPNet": ROBERTA,
    "ModernBert": MODERN,  # keeps its classifier's dense layer where its masked head would be
}


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("task", ["SequenceClassification", "TokenClassification"])
def test_an_encoder_made_for_another_task_predicts_no_tokens_but_has_states(
    tmp_path, name: str, task: str
):
    build = _of(f"{name}For{task}", f"{name}Config", **CLASSIFIERS[name])
    model = load(saved_as(build, tmp_path))
    assert not model.has_head and "no prediction head" in said(model)
    with pytest.raises(ModelError, match="no prediction head"):
        Head(model)
    states = capture_all(run(model), [Passage((5, 9, 30), (0, 2), 0)])
    with torch.no_grad():
        live = hf.AutoModel.from_pretrained(tmp_path).eval()
        last = live(input_ids=torch.tensor([[5, 9, 30]])).last_hidden_state[0, [0, 2]]
    if name != "ModernBert":  # it has a final norm
        torch.testing.assert_close(states.layers[3], last, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "sizes"), [("GPT2", GPT), ("Llama", GROUPED)])
def test_a_decoder_made_for_another_task_says_that_its_head_is_a_tied_one(tmp_path, name, sizes):
    sizes = {**sizes, "tie_word_embeddings": True}
    build = _of(f"{name}ForSequenceClassification", f"{name}Config", **sizes)
    model = load(saved_as(build, tmp_path))
    assert model.has_head
    assert f"This is a {name}ForSequenceClassification" in said(model)


def test_a_language_model_says_nothing_of_tasks(saved):
    for name in ("gpt2", "llama", "bert", "modernbert"):
        assert "This is a" not in said(load(saved(name)))
