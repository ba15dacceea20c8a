"""Texts as a classifier reads them."""

import pytest
from transformers import LlamaConfig

from embspace import load
from embspace.between.classifier_texts import read_texts
from embspace.errors import TextError


def test_texts_that_would_turn_others_of_their_batch_are_refused(save_model, tiny_llama):
    """Dynamic scaling turns a whole batch by its longest text, once that is past nine tokens."""
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=9,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0},
    )
    model = load(save_model(config))
    texts = ["cats", "qzxwv" * 4]
    with pytest.raises(TextError, match=r"a text of 20 tokens .* take 9 tokens at most"):
        read_texts(model, texts)
    passages, n_cut = read_texts(model, texts, max_tokens=9)
    assert [len(p.ids) for p in passages][1] == 9 and n_cut == 1
    assert len(read_texts(load(tiny_llama), texts)[0][1].ids) == 20
