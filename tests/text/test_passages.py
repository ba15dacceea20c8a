"""Which positions of a text are taken, and what the model reads around them."""

import json
import random
import shutil
from pathlib import Path

import pytest
from transformers import BertConfig, GPT2Config, MPNetConfig, RobertaConfig

from embspace import lens, load
from embspace.errors import EmbspaceError, TextError
from embspace.text.passages import Encoder, passages, read_positions
from embspace.text.text import Text

TEXTS = ["cats and dogs", "her brother sings in Rome", "a", "Paris", "teachers teach in London"]


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return load(tiny_gpt2)


@pytest.fixture(scope="module")
def lines() -> Text:
    return Text.read([f"{text} {n}" for n in range(30) for text in TEXTS])


def framed_tokenizer(
    tokenizer, *, start: str = "<s>", end: str | None = "</s>", mask: bool = False
):
    """The byte tokenizer with special tokens that it puts around a text itself."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    names = [start, *([end] if end else []), *(["<mask>"] if mask else []), "<pad>"]
    roles = {"bos_token": start, "pad_token": "<pad>"} | ({"eos_token": end} if end else {})
    twin = PreTrainedTokenizerFast.from_pretrained(_saved(tokenizer), **roles)
    if mask:
        twin.add_special_tokens({"mask_token": "<mask>"})
    ids = [(name, twin.convert_tokens_to_ids(name)) for name in names]
    ending = f" {end}" if end else ""
    twin.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A{ending}", special_tokens=ids
    )
    return twin


def _saved(tokenizer) -> Path:
    import tempfile

    folder = Path(tempfile.mkdtemp())
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def with_start(save_model, byte_tokenizer):
    """A small GPT-2 whose tokenizer puts <s> before a text, as Llama's does."""
    config = GPT2Config(vocab_size=310, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    tokenizer = framed_tokenizer(byte_tokenizer, end=None)
    return load(save_model(config, tokenizer=tokenizer))


@pytest.fixture(scope="module")
def masked(save_model, byte_tokenizer):
    """A small BERT whose tokenizer knows a mask."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=310, intermediate_size=20, **sizes)
    tokenizer = framed_tokenizer(byte_tokenizer, mask=True)
    return load(save_model(config, "AutoModelForMaskedLM", tokenizer=tokenizer))


# positions -------------------------------------------------------------------------------
def test_one_random_position_a_line_is_drawn_over_all_lines_in_order(model, lines):
    rng = random.Random(3)
    lengths = [len(ids) for ids in Encoder(model).encode(lines.lines)]
    wanted = [rng.randrange(n) for n in lengths]
    found = passages(model, Text.read(lines, seed=3))
    assert [p.keep for p in found.passages] == [(at,) for at in wanted]
    assert [len(p.ids) for p in found.passages] == [at + 1 for at in wanted]
    assert found.n_rows == len(lines)


def test_a_choice_of_lines_changes_no_position(model, lines):
    every = {p.line: p for p in passages(model, Text.read(lines, seed=1)).passages}
    for chosen in ([5], range(100, 120), [149, 3, 3]):
        some = passages(model, Text.read(lines, seed=1), lines=chosen).passages
        assert sorted(p.line for p in some) == sorted(set(chosen))
        assert all(p == every[p.line] for p in some)


def test_n_positions_and_all_are_in_one_pass_of_a_causal_model(model, lines):
    lengths = [len(ids) for ids in Encoder(model).encode(lines.lines)]
    for one, n in zip(
        passages(model, Text.read(lines, positions="all")).passages, lengths, strict=True
    ):
        assert one.keep == tuple(range(n))
    three = passages(model, Text.read(lines, positions=3))
    for one, n in zip(three.passages, lengths, strict=True):
        assert len(set(one.keep)) == min(3, n)
        assert list(one.keep) == sorted(one.keep)
        assert len(one.ids) == one.keep[-1] + 1
    some = passages(model, Text.read(lines, positions=3), lines=[7]).passages
    assert some[0] == three.passages[7]


def test_another_seed_draws_other_positions(model, lines):
    assert passages(model, lines).passages != passages(model, Text.read(lines, seed=1)).passages


def test_first_tokens_can_be_left_out(model, lines):
    for positions in ("random", 2, "all"):
        found = passages(model, Text.read(lines, positions=positions, skip_first=4))
        assert min(p.keep[0] for p in found.passages) == 4
    short = Text.read(["a", "cats and dogs in Paris"])
    found = passages(model, Text.read(short, skip_first=3))
    assert [p.line for p in found.passages] == [1]
    assert found.notes() == ("1 texts had no token to take and were left out.",)


def test_positions_can_be_given(model):
    corpus = Text.read(TEXTS)
    found = passages(model, Text.read(corpus, positions=[1, None, 0, 0, 2]))
    assert [(p.line, p.keep) for p in found.passages] == [
        (0, (1,)),
        (2, (0,)),
        (3, (0,)),
        (4, (2,)),
    ]


@pytest.mark.parametrize(
    "positions", [[0], [0, 0, 99, 0, 0], [-1, 0, 0, 0, 0], "some", 0, True, 1.5]
)
def test_positions_that_make_no_sense_are_refused(model, positions):
    with pytest.raises(EmbspaceError):
        passages(model, Text.read(Text.read(TEXTS), positions=positions))


def test_a_file_of_positions_may_be_for_all_lines_or_for_the_chosen_ones(tmp_path):
    file = tmp_path / "p"
    file.write_text("4\n5\n6\n")
    assert read_positions(file, [7, 2, 9], 10) == [
        None,
        None,
        5,
        None,
        None,
        None,
        None,
        4,
        None,
        6,
    ]
    file.write_text("\n".join(str(n) for n in range(10)))
    assert read_positions(file, [7, 2], 10) == list(range(10))
    for content in ("1\nx\n", "", "1\n2\n"):
        file.write_text(content)
        with pytest.raises(TextError):
            read_positions(file, [7, 2, 9], 10)
    with pytest.raises(TextError):
        read_positions(tmp_path / "none", [1], 3)


def test_a_masked_model_reads_all_of_a_text_with_one_mask_a_pass(masked):
    corpus = Text.read(TEXTS)
    tokenizer = masked.vocabulary.tokenizer
    mask = tokenizer.mask_token_id
    found = passages(masked, Text.read(corpus, positions="all")).passages
    for one in found:
        whole = tokenizer(corpus.lines[one.line])["input_ids"]
        assert len(one.ids) == len(whole)
        assert one.ids.count(mask) == 1
        assert one.keep == (one.ids.index(mask),)
        assert [a for a, b in zip(one.ids, whole, strict=True) if a != b] == [mask]
        assert 0 < one.keep[0] < len(whole) - 1  # never one of the special tokens
    assert len(found) == sum(len(tokenizer(t)["input_ids"]) - 2 for t in corpus.lines)


def test_a_masked_model_without_a_mask_token_is_refused(save_model):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=300, intermediate_size=20, **sizes)
    with pytest.raises(TextError, match="no mask token"):
        passages(load(save_model(config, "AutoModelForMaskedLM")), Text.read(TEXTS))


@pytest.mark.parametrize("setting", [{"use_bidirectional_attention": True}, {"is_causal": False}])
def test_a_decoder_that_looks_both_ways_is_refused(tiny_llama, tmp_path, setting):
    """Its states depend on words after them: a text cut at a position has other ones."""
    folder = Path(shutil.copytree(tiny_llama, tmp_path / "both"))
    config = json.loads((folder / "config.json").read_text()) | setting
    (folder / "config.json").write_text(json.dumps(config))
    model = load(folder)
    assert model.attention(0).W_Q.shape == (6, 36, 8)
    with pytest.raises(EmbspaceError, match="looks both ways"):
        passages(model, Text.read(TEXTS))
    with pytest.raises(EmbspaceError, match="looks both ways"):
        lens(model, "cats", "id")


# special tokens --------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["cats", "<s>cats", "<s>", "a<s>b"])
def test_the_start_token_is_there_once_or_not_at_all(with_start, text):
    bos = with_start.vocabulary.tokenizer.bos_token_id
    inner = text.removeprefix("<s>").count("<s>")
    corpus = Text.read([text, "dogs"])
    framed = Encoder(with_start).framed(Encoder(with_start).encode([text])[0])
    assert framed.ids[0] == bos
    assert framed.ids.count(bos) == 1 + inner
    assert framed.first == 1
    bare = Encoder(with_start, special=False)
    plain = bare.encode([text])[0]
    assert bare.framed(plain).ids == plain
    own = plain[1:] if text.startswith("<s>") else plain
    found = passages(with_start, Text.read(corpus, positions="all")).passages
    assert [p.keep for p in found if p.line == 0] == (
        [tuple(range(1, 1 + len(own)))] if own else []
    )


def test_both_ends_are_framed_once(masked):
    encoder = Encoder(masked)
    tokenizer = masked.vocabulary.tokenizer
    wanted = tuple(tokenizer("cats")["input_ids"])
    for text in ("cats", "<s>cats", "cats</s>", "<s>cats</s>"):
        assert encoder.framed(encoder.encode([text])[0]).ids == wanted


# limits ----------------------------------------------------------------------------------
def test_a_text_over_the_limit_is_cut_and_counted(save_model, byte_tokenizer):
    config = GPT2Config(vocab_size=300, n_embd=16, n_layer=2, n_head=2, n_positions=16)
    model = load(save_model(config))
    assert model.vocabulary.tokenizer.model_max_length > 10**9
    corpus = Text.read(["abcde", "zqxwvzqxwvzqxwvzqxwvzqxwvzqxwvzqxwvzqxwv"])
    found = passages(model, Text.read(corpus, positions="all"))
    assert [len(p.ids) for p in found.passages] == [5, 16]
    assert found.n_cut == 1
    assert found.notes() == ("1 texts were cut to 16 tokens.",)


@pytest.mark.parametrize(("name", "config"), [("roberta", RobertaConfig), ("mpnet", MPNetConfig)])
def test_positions_that_start_after_the_padding_leave_fewer(
    save_model, byte_tokenizer, name, config
):
    made = config(
        vocab_size=310,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=20,
        pad_token_id=1,
    )
    tokenizer = framed_tokenizer(byte_tokenizer, mask=True)
    model = load(save_model(made, "AutoModelForMaskedLM", tokenizer=tokenizer))
    assert Encoder(model).max_tokens == 18
    assert Encoder(model, max_tokens=18).max_tokens == 18
    with pytest.raises(TextError, match="takes 18 tokens at most, not 19"):
        Encoder(model, max_tokens=19)
    long = passages(model, Text.read(["zqxwv" * 9]))
    assert len(long.passages[0].ids) == 18
    assert long.n_cut == 1


@pytest.mark.parametrize("max_tokens", [0, -3, 1.5, 2])
def test_a_limit_must_leave_room_for_a_text(masked, max_tokens):
    with pytest.raises(EmbspaceError):
        Encoder(masked, max_tokens=max_tokens)


def test_ids_that_the_embedding_has_not_are_refused_before_the_pass(save_model, byte_tokenizer):
    from transformers import PreTrainedTokenizerFast

    larger = PreTrainedTokenizerFast.from_pretrained(_saved(byte_tokenizer))
    larger.add_tokens([f"<extra{n}>" for n in range(5)])
    config = GPT2Config(vocab_size=300, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    folder = save_model(config, tokenizer=larger)
    with pytest.raises(EmbspaceError, match=r"30[0-9]"):
        passages(load(folder), Text.read(["cats <extra4>"]))


def test_text_without_a_single_token_is_refused(model):
    with pytest.raises(TextError, match="no text has a token to take"):
        passages(model, Text.read(Text.read(["a"]), skip_first=9))


@pytest.mark.parametrize(
    "options", [{"lines": [99]}, {"lines": [-1]}, {"seed": -1}, {"skip_first": -1}]
)
def test_numbers_out_of_range_are_refused(model, options):
    lines = options.pop("lines", None)
    with pytest.raises(EmbspaceError):
        passages(model, Text.read(TEXTS, **options), lines)
