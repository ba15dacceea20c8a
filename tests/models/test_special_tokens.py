"""Start, end and padding tokens, and texts that do not fit: what the model really reads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from embspace.errors import TextError
from embspace.mapping.lensing import lens
from embspace.models.corpus import read_corpus
from embspace.models.load import load
from embspace.models.model import Model
from embspace.models.passages import Encoder, Passage, passages
from embspace.models.running import run
from embspace.models.states import capture_all

ROBERTA = {
    "vocab_size": 300,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 10,
    "max_position_embeddings": 20,
    "pad_token_id": 1,
}


@pytest.fixture(scope="module")
def starting(save_model, byte_tokenizer: Any) -> Model:
    """A small GPT-2 whose tokenizer puts <s> before every text, and no end after it."""
    from tokenizers import processors

    fast = hf.PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer.backend_tokenizer.from_str(
            byte_tokenizer.backend_tokenizer.to_str()
        ),
        bos_token="<s>",
        eos_token="<|endoftext|>",
    )
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", fast.bos_token_id)]
    )
    config = hf.GPT2Config(vocab_size=304, n_embd=12, n_layer=2, n_head=2, n_positions=40)
    return load(save_model(config, tokenizer=fast))


@pytest.mark.parametrize("text", ["hi", "<s>hi", "<s> hi there"])
def test_a_text_starts_with_one_start_token_whether_or_not_it_brings_one(starting, text: str):
    start = starting.vocabulary.tokenizer.bos_token_id
    encoder = Encoder(starting)
    ids = encoder.framed(encoder.encode([text])[0]).ids
    assert ids[0] == start and ids.count(start) == 1


@pytest.mark.parametrize(("text", "n"), [("hi", 0), ("<s>hi", 1)])
def test_without_special_tokens_only_typed_ones_are_there(starting, text: str, n: int):
    start = starting.vocabulary.tokenizer.bos_token_id
    encoder = Encoder(starting, special=False)
    assert encoder.framed(encoder.encode([text])[0]).ids.count(start) == n


def test_a_chat_written_out_with_its_start_token_gets_no_second_one(starting):
    tokenizer = starting.vocabulary.tokenizer
    said = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}],
        chat_template="{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}",
        tokenize=False,
    )
    assert said == "<s>hi"
    ids = passages(starting, read_corpus([said]), positions="all").passages[0].ids
    assert ids.count(tokenizer.bos_token_id) == 1


def test_positions_count_from_the_first_token_of_the_text_itself(starting):
    (one,) = passages(starting, read_corpus(["hi there"]), positions=[0]).passages
    assert one.keep == (1,) and len(one.ids) == 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_texts_of_different_lengths_are_read_as_each_alone_whichever_side_is_padded(
    tiny_gpt2, side: str
):
    model = load(tiny_gpt2)
    model.vocabulary.tokenizer.padding_side = side
    model.vocabulary.tokenizer.pad_token = "<|endoftext|>"
    texts = ["the", "the cats and the dogs saw Paris", "Rome is"]
    taken = passages(model, read_corpus(texts), positions="all").passages
    running = run(model)
    together = capture_all(running, taken).stacked()
    alone = torch.cat([capture_all(running, [one]).stacked() for one in taken], 1)
    assert len({len(one.ids) for one in taken}) == 3
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_an_end_token_inside_a_text_is_read_although_it_also_pads(tiny_gpt2):
    """The mask comes from lengths: never from which ids equal the padding."""
    model = load(tiny_gpt2)
    end = model.vocabulary.tokenizer.eos_token_id
    running = run(model)
    ids = (40, end, 41, 42, end, 43)
    batch = [Passage(ids, tuple(range(6)), 0), Passage(tuple(range(50, 60)), (9,), 1)]
    ours = capture_all(running, batch).stacked()[:, :6]
    with torch.no_grad():
        true = running.module(input_ids=torch.tensor([ids]), output_hidden_states=True)
    assert near(ours[1], true.hidden_states[1][0]) and near(ours[2], true.hidden_states[2][0])
    other = [Passage((40, 44, 41, 42, end, 43), tuple(range(6)), 0)]
    assert not near(capture_all(running, other).stacked()[-1, 5], ours[-1, 5])


def near(ours: Tensor, true: Tensor) -> bool:
    return bool((ours - true).abs().max() <= 1e-5 * true.abs().max())


@pytest.mark.parametrize("kind", ["Roberta", "MPNet"])
def test_positions_that_start_after_the_padding_index_are_two_fewer(
    save_model, byte_tokenizer, kind: str
):
    config = getattr(hf, f"{kind}Config")(**ROBERTA)
    masked = hf.AutoTokenizer.from_pretrained(
        save_model(config, "AutoModelForMaskedLM", tokenizer=byte_tokenizer)
    )
    masked.add_special_tokens({"mask_token": "<|endoftext|>"})
    folder = save_model(config, "AutoModelForMaskedLM", tokenizer=masked)
    model = load(folder)
    assert Encoder(model).limit == 18
    whole = passages(model, read_corpus(["a" * 18]), positions=[5], max_tokens=18).passages
    assert len(whole[0].ids) == 18
    assert capture_all(run(model), whole).layers[2].shape == (1, 12)
    with pytest.raises(TextError, match="takes 18 tokens at most, not 19"):
        passages(model, read_corpus(["a"]), max_tokens=19)


def test_texts_beyond_the_models_length_are_cut_counted_and_said(save_model, byte_tokenizer):
    config = hf.GPT2Config(vocab_size=300, n_embd=12, n_layer=2, n_head=2, n_positions=16)
    model = load(save_model(config, tokenizer=byte_tokenizer))
    assert model.vocabulary.tokenizer.model_max_length > 1e20
    corpus = read_corpus(["QQQQQ", "Q" * 40])
    taken = passages(model, corpus, positions="all")
    assert [len(one.ids) for one in taken.passages] == [5, 16]
    assert taken.n_cut == 1 and taken.notes() == ("1 texts were cut to 16 tokens.",)
    assert len(capture_all(run(model), taken.passages)) == 21
    with pytest.raises(TextError, match=r"40 tokens.*takes 16"):
        lens(model, "Q" * 40, "id")


@pytest.fixture(scope="module")
def outgrown(save_model, byte_tokenizer, tmp_path_factory) -> Path:
    """A tokenizer of 305 tokens beside an embedding of 300 rows."""
    config = hf.GPT2Config(vocab_size=300, n_embd=12, n_layer=2, n_head=2, n_positions=16)
    folder = save_model(config, tokenizer=byte_tokenizer)
    larger = hf.AutoTokenizer.from_pretrained(folder)
    larger.add_tokens([f"<extra{i}>" for i in range(5)])
    larger.save_pretrained(folder)
    return folder


def test_an_id_beyond_the_embedding_is_refused_before_the_model_runs(outgrown, monkeypatch):
    model = load(outgrown)
    monkeypatch.setattr(hf.GPT2Model, "forward", lambda *a, **k: pytest.fail("ran"))
    with pytest.raises(TextError, match=r"id 304, but the embedding .* has 300 rows"):
        lens(model, "the <extra4>", "id")
    with pytest.raises(TextError, match=r"id 304, but the embedding .* has 300 rows"):
        passages(model, read_corpus(["the cats", "<extra4>"]))


def test_a_larger_tokenizer_is_no_hindrance_to_texts_of_known_tokens(outgrown):
    model = load(outgrown)
    ids = model.vocabulary.tokenizer("the cats")["input_ids"]
    assert lens(model, "the cats", "id").ids == tuple(ids)


def test_an_embedding_larger_than_the_tokenizer_shows_none_of_its_padded_rows(tiny_gpt2):
    """Row 302 is fifty times row 7 and row 303 its opposite: one of them would win everywhere."""
    model = load(tiny_gpt2)
    stored = model.checkpoint.tensor("transformer.wte.weight")
    changed = stored.clone()
    changed[302], changed[303] = 50 * stored[7], -50 * stored[7]
    model.checkpoint.tensor = lambda name, read=model.checkpoint.tensor: (
        changed if name == "transformer.wte.weight" else read(name)
    )
    found = lens(model, "the cats and the dogs", "id", k=300)
    for grid in found.grids.values():
        assert int(grid.ids.max()) < 300
        assert torch.allclose(grid.p.double().sum(-1), torch.ones(1, dtype=torch.float64))
    assert "4 padded rows of the head are no tokens" in " ".join(found.notes)
    assert found.settings["probabilities"].startswith("over the tokens that the tokenizer names")


def test_the_ids_that_were_read_are_in_the_result(starting):
    found = lens(starting, "<s>hi", "id")
    start = starting.vocabulary.tokenizer.bos_token_id
    assert found.places[0].id == start
    assert json.loads(found.to_json())
