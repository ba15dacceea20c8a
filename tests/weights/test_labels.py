"""Labels: readable, one line, never two alike."""

from hypothesis import given
from hypothesis import strategies as st

from embspace.weights.labels import label, labels, token_texts


@given(st.lists(st.text(max_size=6), max_size=30, unique=True))
def test_two_tokens_never_share_a_label(texts):
    assert len(set(labels(texts, set()))) == len(texts)


@given(st.lists(st.sampled_from(["a", "b", "a#1", "a#2", "⟪a⟫", "(row 3: no token)", ""])))
def test_ids_with_the_same_text_have_labels_of_their_own_too(texts):
    rows = [None if text == "b" else text for text in texts]
    assert len(set(labels(rows, {0, 3}))) == len(texts)


def test_a_number_that_tells_labels_apart_is_not_taken_by_another():
    assert len(set(labels(["x#2", "x", "x", "x#2#2"], set()))) == 4


@given(st.text())
def test_a_label_is_one_visible_line(text):
    shown = label(text)
    assert "\n" not in shown and "\r" not in shown and " " not in shown
    assert shown.isprintable()


@given(st.binary(max_size=8))
def test_any_bytes_get_a_printable_label(raw):
    assert label(raw.decode("utf8", errors="surrogateescape")).isprintable()


def test_marks_keep_the_start_of_a_word():
    assert label(" Paris") == "·Paris" and label("Paris") == "Paris"


def test_the_mark_itself_and_the_backslash_stay_distinct():
    assert len({label(" "), label("·"), label("\\u00b7"), label("\\")}) == 4


def test_controls_direction_marks_and_joiners_are_escaped():
    assert label("a\u202eb\u200bc\x1b[31m") == "a\\u202eb\\u200bc\\u001b[31m"


def test_byte_level_pieces_that_are_half_a_character_show_their_bytes(byte_tokenizer):
    texts = token_texts(byte_tokenizer, 300)
    ids = byte_tokenizer("日本 🙂", add_special_tokens=False)["input_ids"]
    joined = "".join(texts[i] for i in ids).encode("utf8", "surrogateescape").decode("utf8")
    assert joined == "日本 🙂"
    assert label(texts[ids[0]]) == "\\xE6"


def test_rows_without_a_token_and_special_tokens_are_not_text():
    shown = labels(["<s>", "<s>", None, ""], {0})
    assert shown == ["⟪<s>⟫", "<s>", "(row 2: no token)", "(empty)"]


def metaspace_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, "▁he": 1, "he": 2, "<0x0A>": 3, "<0x65>": 4, "e": 5, "▁": 6}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def test_sentencepiece_keeps_word_starts_and_byte_pieces_apart():
    shown = labels(token_texts(metaspace_tokenizer(), 7), {0})
    assert shown == ["⟪<unk>⟫", "·he", "he", "\\x0A", "\\x65", "e", "·"]


def test_wordpiece_keeps_its_inner_mark():
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "the": 1, "##the": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    assert labels(token_texts(fast, 3), {0})[1:] == ["the", "##the"]
