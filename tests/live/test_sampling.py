"""Sentences drawn from a model by its own distribution, whatever a file beside it asks for."""

import json

import pytest
import torch
import transformers as hf

from embspace.errors import TextError
from embspace.live.own_text import sampled
from embspace.live.running import run
from embspace.read.reader import load

N = 6000


@pytest.fixture
def started(save_model, byte_tokenizer):
    """A Llama whose start token is not the one that ends a text; 4 rows beyond the tokenizer."""
    config = hf.LlamaConfig(
        vocab_size=304,
        hidden_size=32,
        intermediate_size=44,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=0,
    )
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer.backend_tokenizer,
        bos_token=byte_tokenizer.convert_ids_to_tokens(1),
        eos_token="<|endoftext|>",
    )
    return save_model(config, tokenizer=tokenizer)


def drawn_pairs(model, monkeypatch) -> torch.Tensor:
    """The first two ids of N texts."""
    seen: list[list[int]] = []
    tokenizer = model.vocabulary.tokenizer
    monkeypatch.setattr(
        type(tokenizer),
        "batch_decode",
        lambda self, ids, **_: [seen.append((*row, 0)[:2]) or "x" for row in ids],
    )
    sampled(model, N, n_tokens=2)
    return torch.tensor(seen)


def test_tokens_come_as_often_as_the_model_says(started, monkeypatch):
    """Also the second one, which attends to the start token; whatever generation_config asks."""
    wish = {"repetition_penalty": 5.0, "top_k": 2, "min_p": 0.9, "suppress_tokens": [5]}
    (started / "generation_config.json").write_text(json.dumps(wish))
    model = load(started)
    pairs = drawn_pairs(model, monkeypatch)
    module = run(model, attention="eager").module
    with torch.no_grad():
        first = module(torch.tensor([[1]])).logits[0, -1, :300].softmax(-1)
        seconds = module(torch.stack([torch.full((299,), 1), torch.arange(1, 300)], 1))
    second = first[1:] @ seconds.logits[:, -1, :300].softmax(-1)  # of those that have not ended
    for at, p, n in ((0, first, N), (1, second / first[1:].sum(), int((pairs[:, 0] != 0).sum()))):
        ids = pairs[:, at] if at == 0 else pairs[pairs[:, 0] != 0, 1]
        share = torch.bincount(ids, minlength=300) / n
        assert ids.max() < 300  # rows that only pad the table are no tokens
        assert ((share - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 2 / n).all()


def test_a_text_ends_where_the_model_ends_it(started):
    model = load(started)
    drawn = sampled(model, 200, n_tokens=30, seed=1)
    assert all("<|endoftext|>" not in line for line in drawn.lines)
    lengths = {len(model.vocabulary.tokenizer(line)["input_ids"]) for line in drawn.lines}
    assert len(lengths) > 3


def test_equal_seeds_give_equal_texts_and_the_callers_random_numbers_stay_as_they_were(started):
    model = load(started)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one = sampled(model, 20, n_tokens=5, seed=3)
    assert torch.equal(torch.rand(3), expected)
    assert one == sampled(model, 20, n_tokens=5, seed=3) != sampled(model, 20, n_tokens=5, seed=4)


def test_a_masked_model_writes_no_text():
    with pytest.raises(TextError, match="writes no text"):
        sampled(load("sample-bert-a"), 2)
