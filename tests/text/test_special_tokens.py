"""Start tokens that a text brings along, padding on either side, vocabularies of other sizes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from embspace.errors import TextError, VocabularyError
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.lens import lens
from embspace.read.reader import load
from embspace.text.passages import Encoder, passages
from embspace.text.text import Text
from embspace.weights.model import Model


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


def test_a_text_that_goes_on_is_not_closed_first(save_model, byte_tokenizer):
    """Some tokenizers put an end token behind every text: nothing sensible follows that."""
    from tokenizers import processors

    tokenizer = byte_tokenizer.backend_tokenizer
    fast = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.from_str(tokenizer.to_str()), eos_token="</s>", bos_token="<s>"
    )
    ends = [("<s>", fast.bos_token_id), ("</s>", fast.eos_token_id)]
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=ends
    )
    config = hf.GPT2Config(vocab_size=304, n_embd=12, n_layer=2, n_head=2, n_positions=40)
    model = load(save_model(config, tokenizer=fast))
    whole = tuple(fast("the cats")["input_ids"])
    assert whole[-1] == fast.eos_token_id
    assert lens(model, "the cats", "id").ids == whole
    found = lens(model, "the cats", "id", generate=2)
    assert found.ids[: len(whole) - 1] == whole[:-1]
    first = run(model).module(torch.tensor([whole[:-1]])).logits[0, -1, : len(model.vocabulary)]
    assert found.ids[len(whole) - 1] == int(first.argmax())


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
    ids = passages(starting, Text.read(Text.read([said]), positions="all")).passages[0].ids
    assert ids.count(tokenizer.bos_token_id) == 1


def test_positions_count_from_the_first_token_of_the_text_itself(starting):
    (one,) = passages(starting, Text.read(Text.read(["hi there"]), positions=[0])).passages
    assert one.keep == (1,) and len(one.ids) == 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_texts_of_different_lengths_are_read_as_each_alone_whichever_side_is_padded(
    tiny_gpt2, side: str
):
    model = load(tiny_gpt2)
    model.vocabulary.tokenizer.padding_side = side
    model.vocabulary.tokenizer.pad_token = "<|endoftext|>"
    texts = ["the", "the cats and the dogs saw Paris", "Rome is"]
    taken = passages(model, Text.read(Text.read(texts), positions="all")).passages
    running = run(model)
    together = capture_all(running, taken).stacked()
    alone = torch.cat([capture_all(running, [one]).stacked() for one in taken], 1)
    assert len({len(one.ids) for one in taken}) == 3
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


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
    model.require_proof()
    monkeypatch.setattr(hf.GPT2Model, "forward", lambda *a, **k: pytest.fail("ran"))
    with pytest.raises(TextError, match=r"id 304, but the embedding .* has 300 rows"):
        lens(model, "the <extra4>", "id")
    with pytest.raises(TextError, match=r"id 304, but the embedding .* has 300 rows"):
        passages(model, Text.read(["the cats", "<extra4>"]))


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


@pytest.mark.parametrize("text", ["a\udcff", "\ud800", "the \udc80 cats"])
def test_half_a_character_is_refused_before_the_tokenizer_chokes_on_it(starting, text: str):
    with pytest.raises(TextError, match="half a character"):
        Encoder(starting).encode(["the cats", text])
    with pytest.raises(TextError, match="half a character"):
        lens(starting, text, "id")


@pytest.mark.parametrize("text", ["a\0b", "\u202ex", "\U0010ffff", "\ufffe", "\x1b[31m", "a\u0301"])
def test_any_whole_character_is_read(starting, text: str):
    (ids,) = Encoder(starting).encode([text])
    assert ids and starting.vocabulary.tokenizer.decode(ids) == text


def test_a_vocabulary_of_digits_without_an_unknown_token_reads_texts(save_model):
    """The letter a is no token of it, and nothing stands for what it does not know."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({str(n): n for n in range(10)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    config = hf.GPT2Config(vocab_size=304, n_embd=12, n_layer=2, n_head=2, n_positions=40)
    model = load(save_model(config, tokenizer=fast))
    (one,) = passages(model, Text.read(Text.read(["3 1 4"]), positions="all")).passages
    assert one.ids == (3, 1, 4)
    assert model.vocabulary.token_ids("7") == [7]
    with pytest.raises(VocabularyError, match="has no token of its own"):
        model.vocabulary.token_ids("cat")
    with pytest.raises(TextError, match="cannot read the text"):
        passages(model, Text.read(Text.read(["cat"]), positions="all"))


@pytest.mark.parametrize("named", [5, [5, 6]])
def test_an_end_token_of_the_generation_config_alone_ends_a_text(starting, tmp_path, named):
    import shutil

    from embspace.live.greedy import ends_of

    folder = shutil.copytree(starting.folder, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": named}))
    assert ends_of(load(folder)) >= set(named if isinstance(named, list) else [named])


def test_a_word_is_found_as_it_is_printed(starting):
    vocabulary = starting.vocabulary
    labelled = next(i for i, x in enumerate(vocabulary.labels) if x.startswith("·") and len(x) > 2)
    assert vocabulary.token_ids(vocabulary.labels[labelled]) == [labelled]


def test_words_are_paired_alike_where_a_line_begins_with_its_start_token(starting):
    from embspace.text.words import paired_words

    plain, typed = "the cats saw Paris", "<s>the cats saw Paris"
    found = paired_words(starting, starting, Text.read([typed]), n=10)
    alone = paired_words(starting, starting, Text.read([plain]), n=10)
    assert found.a[0].ids == alone.a[0].ids
    assert found.words[-4:] == alone.words and found.a[0].keep[-4:] == alone.a[0].keep
