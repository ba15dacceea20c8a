"""VocabularySpace: rows that are tokens, exact projections, filters, both inverses."""

import re
from typing import Any

import pytest
import torch

import embspace
from embspace.errors import VocabularyError
from embspace.weights.vocabulary import VocabularySpace


@pytest.fixture(scope="module")
def space(tiny_gpt2) -> VocabularySpace:
    return embspace.load(tiny_gpt2).vocabulary


def of_texts(texts: list[str | None], special: tuple[int, ...] = ()) -> VocabularySpace:
    """A vocabulary of these tokens, whatever a tokenizer would make of them."""
    space = VocabularySpace(torch.zeros(len(texts), 2), None)
    given: dict[str, Any] = {"tokenizer": object(), "texts": texts, "special": set(special)}
    vars(space).update(given)
    return space


def dense_top(space, vectors, k, sign=1.0):
    scores = sign * (vectors.double() @ space.table.double().T)
    order = torch.stack(
        [torch.tensor(sorted(range(len(s)), key=lambda j: (-s[j], j))[:k]) for s in scores]
    )
    return order, scores.gather(1, order) * sign


@pytest.mark.parametrize("k", [1, 7, 300, 5000])
@pytest.mark.parametrize("smallest", [False, True])
def test_top_equals_a_dense_float64_product(space, k, smallest):
    vectors = torch.randn(5, space.d, generator=torch.Generator().manual_seed(k))
    ids, scores = space.top_ids(vectors, k, smallest=smallest)
    expected, exact = dense_top(space, vectors, min(k, len(space)), -1.0 if smallest else 1.0)
    assert torch.equal(ids, expected)
    torch.testing.assert_close(scores, exact, rtol=1e-12, atol=1e-12)


def test_ties_are_broken_by_id_and_duplicates_of_a_row_stay_together():
    table = torch.zeros(100, 4)
    table[[7, 31, 60]] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    ids, scores = VocabularySpace(table, None).top_ids(torch.ones(1, 4), 5)
    assert ids[0].tolist() == [7, 31, 60, 0, 1]
    assert scores[0].tolist() == [10, 10, 10, 0, 0]


def test_an_order_that_float32_cannot_see_is_settled_in_float64():
    """Scores a millionth of an ulp apart: 60 near ties, more than the screening keeps."""
    base = torch.randn(64, generator=torch.Generator().manual_seed(0)).double()
    table = base.repeat(60, 1)
    table[:, 0] += torch.arange(60) * 1e-12
    vectors = torch.ones(1, 64)
    ids, _ = VocabularySpace(table, None).top_ids(vectors, 10)
    expected, _ = dense_top(VocabularySpace(table, None), vectors, 10)
    assert torch.equal(ids, expected)


def test_absolute_takes_both_ends(space):
    vectors = torch.randn(3, space.d, generator=torch.Generator().manual_seed(2))
    ids, scores = space.top_ids(vectors, 9, absolute=True)
    expected = (vectors.double() @ space.table.double().T).abs().topk(9)
    assert torch.equal(ids, expected.indices)
    torch.testing.assert_close(scores, expected.values)


def test_rows_beyond_the_tokenizer_are_no_tokens(tiny_gpt2, space):
    model = embspace.load(tiny_gpt2)
    assert model.embedding().shape[0] == 304
    assert len(space) == len(space.labels) == 300


def test_ids_past_a_gap_are_tokens_and_those_in_it_are_none():
    """A tokenizer of nine tokens whose ids go up to 11: the last rows are no padding."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    ids = [*range(6), 9, 10, 11]
    words = models.WordLevel({f"w{i}": i for i in ids}, unk_token="w0")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="w0")
    table = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    space = VocabularySpace(table, tokenizer)
    assert len(tokenizer) == 9 and len(space) == 12 and space.n_unreadable == 0
    assert [space.labels[i] for i in ids] == ["⟪w0⟫", *(f"w{i}" for i in ids[1:])]
    assert space.labels[7] == "(row 7: no token)"
    assert space.token_ids("w11") == [11]
    found, _ = space.top_ids(table[11:12], 12)
    assert sorted(found[0].tolist()) == list(range(12))
    assert VocabularySpace(table[:10], tokenizer).n_unreadable == 2


def test_a_word_that_the_tokenizer_does_not_know_is_not_read_as_its_unknown_token():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = models.WordPiece({"[UNK]": 0, "the": 1, "##re": 2}, unk_token="[UNK]")
    tokenizer = Tokenizer(pieces)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    space = VocabularySpace(torch.eye(3), fast)
    assert space.token_ids("the") == [1] and space.token_ids("[UNK]") == [0]
    with pytest.raises(VocabularyError, match="no token of its own"):
        space.token_ids("snow\u2603")
    with pytest.raises(VocabularyError, match="the \\+ ##re"):
        space.token_ids("there")


def test_padded_rows_never_win(space):
    table = torch.cat([space.table, 50 * space.table[7:8], -50 * space.table[7:8]])
    padded = VocabularySpace(table, space.tokenizer)
    for sign in (1, -1):
        ids, _ = padded.top_ids(sign * table[7:8], 300)
        assert int(ids.max()) < 300


def test_project_equals_the_product_with_E(space):
    vectors = torch.randn(4, space.d)
    torch.testing.assert_close(space.project(vectors), vectors @ space.E)


def test_the_pseudo_inverse_needs_only_a_square_matrix(space):
    matrix = torch.randn(space.d, 3, dtype=torch.float64)
    expected = torch.linalg.pinv(space.table.double().T) @ matrix
    found = space.table.double() @ space.back(matrix, "pinv")
    torch.testing.assert_close(found, expected)


def test_words_are_found_with_and_without_a_leading_space(space):
    lookups = space.find("the")
    assert [x.text for x in lookups] == ["the", " the"]
    assert lookups[1].single and lookups[1].labels == ("·the",)


def test_a_word_of_several_tokens_is_said_so(space):
    with pytest.raises(VocabularyError, match=r"'Zürich' is not one token .* \+ "):
        space.token_ids("Zürich")


@pytest.mark.parametrize("word", ["", "   ", "#300", "#9999"])
def test_what_is_no_token_is_refused(space, word):
    with pytest.raises(VocabularyError):
        space.token_ids(word)


def test_filters_keep_what_they_name_and_no_special_token(space):
    texts = space.texts
    for name, holds in {
        "ascii": lambda t: t.isascii(),
        "alnum": lambda t: re.fullmatch("[A-Za-z0-9]+", t.strip()),
        "unicode-alnum": lambda t: t.strip().isalnum(),
        "words": lambda t: t.startswith(" ") and t[1:].isalpha() and len(t) > 3,
        "re:^ [a-t]": lambda t: t[0] == " " and "a" <= t[1] <= "t",
    }.items():
        kept = space.mask(name).nonzero()[:, 0].tolist()
        assert kept and all(holds(texts[i]) for i in kept), name
        assert not set(kept) & space.special


def test_a_corpus_filter_keeps_its_tokens_alone(space, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cats and the dogs")
    own = set(space.tokenizer("the cats and the dogs")["input_ids"])
    exact = set(space.mask(f"file-exact:{corpus}").nonzero()[:, 0].tolist())
    assert exact == own
    words = {space.texts[i].strip().lower() or space.texts[i] for i in own}
    kept = set(space.mask(f"file:{corpus}").nonzero()[:, 0].tolist())
    assert kept == {
        i
        for i, text in enumerate(space.texts)
        if i not in space.special and (text.strip().lower() or text) in words
    }
    assert kept > own


def test_alphanumeric_tokens_are_ascii_unless_any_script_is_asked_for():
    space = of_texts(["a1", " b", "é", " ²", "日本", "##c", "-", "\u212a"])
    for name, passing in (("alnum", [0, 1, 5]), ("unicode-alnum", [0, 1, 2, 3, 4, 5, 7])):
        mask = space.mask(name)
        assert mask is not None and mask.nonzero()[:, 0].tolist() == passing


def test_tokens_of_one_word_have_one_number():
    texts = ["We", " we", "we", "##we", " wet", " ", "\n", "<s>", None, "##"]
    space = of_texts(texts, special=(7,))
    numbers = space.word_numbers.tolist()
    assert numbers[:4] == [0, 0, 0, 0]
    assert len(set(numbers)) == len(texts) - 3


@pytest.mark.parametrize("name", ["nouns", "re:[", "file:/no/such/file", "re:^zzzz$"])
def test_a_filter_that_cannot_be_used_is_refused(space, name):
    with pytest.raises(VocabularyError):
        space.mask(name)


def test_a_special_token_is_marked_and_not_shown_as_text(space):
    assert space.labels[0] == "⟪<|endoftext|>⟫"


def test_vectors_of_another_width_or_with_nan_are_refused(space):
    with pytest.raises(VocabularyError, match="expected vectors of shape"):
        space.top_ids(torch.zeros(1, 5), 3)
    with pytest.raises(VocabularyError, match="NaN"):
        space.top_ids(torch.full((1, space.d), torch.nan), 3)


@pytest.mark.parametrize("word", ["\n", "\\n"])
def test_a_line_break_is_looked_up_as_itself_and_as_the_tables_print_it(space, word):
    (found,) = space.find(word)
    assert found.labels == ("\\n",) and [space.texts[i] for i in found.ids] == ["\n"]


def test_every_label_is_looked_up_as_printed(space):
    for i, label in enumerate(space.labels):
        ids = {lookup.ids for lookup in space.find(label)}
        assert (i,) in ids, label
