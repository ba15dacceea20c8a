"""Tokens of two vocabularies are matched by their bytes, whatever marks their word starts."""

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from embspace.between.shared_tokens import shared_tokens, token_bytes
from embspace.errors import VocabularyError
from embspace.weights.vocabulary import VocabularySpace


def space(tokenizer, *, rows=None, name="model"):
    """A vocabulary space with random rows around a tokenizer."""
    n = len(tokenizer) if rows is None else rows
    return VocabularySpace(torch.randn(n, 8), tokenizer, name=name)


def byte_level(pieces, special="<|end|>"):
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=special)


def metaspace(pieces, special="</s>"):
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=special)


def wordpiece(pieces, special="[SEP]"):
    vocabulary = {p: i for i, p in enumerate(["[UNK]", *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, sep_token=special, unk_token="[UNK]")


def names(one, other):
    """Matched tokens as the two tokenizers spell them."""
    shared = shared_tokens(one, other)
    pieces = (
        s.tokenizer.convert_ids_to_tokens(ids.tolist())
        for s, ids in ((one, shared.ids_a), (other, shared.ids_b))
    )
    return dict(zip(*pieces, strict=True))


BYTE_LEVEL = byte_level(["Ġthe", "the", "Ġcat", "ing", "Ċ", "Ã©", "Ã", ",", "Ġ,", "中", "Ġx"])
METASPACE = metaspace(["<0x0A>", "▁the", "the", "▁dog", "ing", "é", "<0xC3>", "<0x2C>", ",", "▁x"])
WORDPIECE = wordpiece(["the", "##the", "cat", "##ing", "##,", ",", "##é", "中", "x", "##x"])


def test_word_starts_of_byte_level_and_metaspace_are_one():
    found = names(space(BYTE_LEVEL), space(METASPACE))
    assert found == {
        **{"Ġthe": "▁the", "the": "the", "ing": "ing", "Ċ": "<0x0A>"},
        **{"Ã©": "é", "Ã": "<0xC3>", ",": ",", "Ġx": "▁x"},
    }


def test_a_wordpiece_without_hashes_begins_a_word_and_one_with_hashes_does_not():
    found = names(space(WORDPIECE), space(METASPACE))
    assert found == {
        **{"the": "▁the", "##the": "the", "##ing": "ing", "##é": "é"},
        **{",": ",", "x": "▁x"},
    }


def test_punctuation_and_ideographs_that_wordpiece_cuts_off_are_pieces_without_a_space():
    tokenizer = byte_level(["Ġ,", ",", "Ġthe", "ä¸Ń", "Ġä¸Ń"])
    found = names(space(WORDPIECE), space(tokenizer))
    assert found == {",": ",", "the": "Ġthe", "中": "ä¸Ń"}


def test_matching_is_the_same_from_either_side():
    for one, other in ((BYTE_LEVEL, METASPACE), (WORDPIECE, BYTE_LEVEL), (METASPACE, WORDPIECE)):
        forth, back = names(space(one), space(other)), names(space(other), space(one))
        assert forth == {b: a for a, b in back.items()}


def test_two_vocabularies_of_one_kind_keep_their_own_distinctions():
    other = wordpiece([",", "##,", "dog", "##ing", "ing"])
    found = names(space(WORDPIECE), space(other))
    assert found == {"[UNK]": "[UNK]", "[SEP]": "[SEP]", ",": ",", "##,": "##,", "##ing": "##ing"}


def test_identical_tokenizers_share_every_row_in_order():
    shared = shared_tokens(space(METASPACE), space(METASPACE))
    assert shared.identical and shared.coverage == (1.0, 1.0)
    assert shared.ids_a.tolist() == shared.ids_b.tolist() == list(range(len(METASPACE)))


def test_rows_are_matched_by_token_and_not_by_index():
    pieces = [f"Ġ{chr(97 + n)}" for n in range(12)]
    one, other = byte_level(pieces), byte_level(pieces[::-1])
    shared = shared_tokens(space(one), space(other))
    n = len(pieces)
    ordinary = shared.ids_a < n
    assert shared.ids_b[ordinary].tolist() == [n - 1 - i for i in range(n)]
    assert not shared.identical and len(shared) == n + 1  # the end-of-text token is the last


def test_padded_rows_beyond_the_tokenizer_are_no_tokens():
    n = len(METASPACE)
    shared = shared_tokens(space(METASPACE, rows=n + 5), space(METASPACE, rows=n + 50))
    assert shared.sizes == (n, n) and int(shared.ids_a.max()) < n


def test_a_tokenizer_larger_than_its_table_shares_only_the_rows_there_are():
    n = len(METASPACE)
    shared = shared_tokens(space(METASPACE, rows=n - 3), space(METASPACE))
    assert shared.sizes == (n - 3, n) and shared.coverage[0] == 1.0
    assert shared.ids_a.tolist() == shared.ids_b.tolist() == list(range(n - 3))


def test_added_tokens_are_matched_among_themselves_only():
    one, other = byte_level(["Ġthe", "Ġcat", "[X]"]), byte_level(["Ġcat", "Ġthe", "Ġa"])
    other.add_tokens([AddedToken("[X]", special=False), AddedToken("[Y]", special=True)])
    assert names(space(one), space(other)) == {
        **{"Ġthe": "Ġthe", "Ġcat": "Ġcat"},
        "<|end|>": "<|end|>",
    }
    shared = shared_tokens(space(one), space(other))
    assert shared.n_added == 1


def test_filters_hold_on_both_sides():
    shared = shared_tokens(space(BYTE_LEVEL), space(METASPACE), filters="unicode-alnum")
    assert BYTE_LEVEL.convert_ids_to_tokens(shared.ids_a.tolist()) == [
        "Ġthe",
        "the",
        "ing",
        "Ã©",
        "Ġx",
    ]
    assert shared.to_dict()["filters"] == ["unicode-alnum"]


def test_ids_are_one_to_one():
    shared = shared_tokens(space(BYTE_LEVEL), space(WORDPIECE))
    assert len(set(shared.ids_a.tolist())) == len(set(shared.ids_b.tolist())) == len(shared)


def test_without_a_tokenizer_rows_are_not_matched_by_index():
    with pytest.raises(VocabularyError, match="no tokenizer"):
        shared_tokens(VocabularySpace(torch.randn(9, 8), None), space(METASPACE))


def test_vocabularies_with_nothing_in_common_are_refused():
    one, other = byte_level(["Ġa", "Ġb"], "<a>"), byte_level(["Ġc", "Ġd"], "<b>")
    with pytest.raises(VocabularyError, match="share 0 tokens"):
        shared_tokens(space(one, name="A"), space(other, name="B"))


@pytest.mark.parametrize("text", ["\udc0a", "\n"])
def test_a_byte_piece_and_the_character_it_stands_for_have_the_same_bytes(text):
    assert token_bytes(text) == b"\n"
