"""Words are paired by the characters they stand for, whatever the tokenizers do."""

import re

import pytest
import torch

import embspace
from embspace.errors import TextError
from embspace.text.text import Text
from embspace.text.words import paired_words

TEXTS = [
    "The cats and the dogs saw Paris.",
    "naïve café, two\u200b words: 日本 2024!",
    "doctors heal; her brother sings",
]


@pytest.fixture(scope="module")
def models(tiny_gpt2):
    return embspace.load(tiny_gpt2), embspace.load("sample-bert-a")


def decoded(model, passes):
    """The text of every kept token with those before it that belong to the same word."""
    tokenizer = model.vocabulary.tokenizer
    for one in passes:
        for place in one.keep:
            yield one.line, tokenizer.decode(list(one.ids[: place + 1]), skip_special_tokens=True)


def test_both_sides_end_with_the_same_word(models):
    a, b = models
    paired = paired_words(a, b, Text.read(TEXTS), n=100)
    assert len(paired) > 8
    sides = zip(decoded(a, paired.a), decoded(b, paired.b), paired.words, strict=True)
    for (line, one), (other_line, other), word in sides:
        assert line == other_line and word in TEXTS[line]
        assert one.endswith(word)
        if word.isascii() and "[UNK]" not in other:
            assert re.sub(r"\s|##", "", other).endswith(word.lower())


def test_nothing_is_lost_uncounted(models):
    a, b = models
    paired = paired_words(a, b, Text.read(TEXTS), n=1000)
    every = sum(len(re.findall(r"\w+|[^\w\s]", text)) for text in TEXTS)
    assert len(paired) + paired.n_split + paired.n_cut + paired.n_first == every


def test_rows_of_both_models_are_as_many_and_in_the_order_of_the_texts(models):
    a, b = models
    paired = paired_words(a, b, Text.read(TEXTS), n=1000)
    rows = [[p.line for p in side for _ in p.keep] for side in (paired.a, paired.b)]
    assert rows[0] == rows[1] and len(rows[0]) == len(paired)


def test_texts_are_drawn_by_seed_until_there_are_words_enough(models):
    a, b = models
    corpus = Text.read(TEXTS)
    few = paired_words(a, b, Text.read(corpus, seed=1), 3)
    assert {p.line for p in few.a} < set(range(3)) and len(few) >= 3
    assert few == paired_words(a, b, Text.read(corpus, seed=1), 3)


def test_words_beyond_the_longest_text_are_counted(models):
    a, b = models
    paired = paired_words(a, b, Text.read(Text.read([TEXTS[0] * 9]), max_tokens=20), 1000)
    assert paired.n_cut > 0
    assert all(max(p.keep) < 20 for side in (paired.a, paired.b) for p in side)


def test_the_first_position_of_a_pass_is_left_out(models):
    a, _ = models
    paired = paired_words(a, a, Text.read(["a b c"]), n=1000)
    assert paired.n_first == 1 and paired.words == ("b", "c")


def test_texts_without_a_common_word_are_refused(models):
    a, _ = models
    with pytest.raises(TextError, match="no word"):
        paired_words(a, a, Text.read(["a"]), n=10)


def test_a_tokenizer_that_reports_no_spans_is_refused(models, monkeypatch):
    a, b = models
    monkeypatch.setattr(type(a.vocabulary.tokenizer), "is_fast", False)
    with pytest.raises(TextError, match="which characters"):
        paired_words(a, b, Text.read(TEXTS), n=10)


def test_states_are_compared_at_the_same_words(models):
    from embspace.between.similarity import debiased_cka
    from embspace.between.state_alignment import align_states
    from embspace.live.capture import capture_all
    from embspace.live.running import run

    a, b = models
    result = align_states(a, b, TEXTS, words=60)
    assert list(result.measures) == ["cka"]  # fewer words than the width: no fits
    assert any("no more than the width" in note for note in result.notes)
    paired = paired_words(a, b, Text.read(TEXTS), n=60)
    x, y = (capture_all(run(m), side) for m, side in ((a, paired.a), (b, paired.b)))
    expected = debiased_cka(x.layers[2], y.layers[1])
    assert result.measures["cka"].score[2][1] == pytest.approx(expected, rel=1e-6)
    assert result.words["n"] == len(paired) and result.to_dict()["widths"]["a"] == 32


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_state_that_is_the_same_everywhere_is_named_and_the_rest_is_matched(
    models, monkeypatch, side: str
):
    """Of equal scores the matching would take the diagonal, and call it no accident."""
    from embspace.between import state_alignment

    taken, calls = state_alignment._states, []

    def one_dead(*given):
        states = taken(*given)
        calls.append(1)
        if len(calls) == (1 if side == "a" else 2):
            states[2] = 7.0
        return states

    monkeypatch.setattr(state_alignment, "_states", one_dead)
    texts = [f"cats {n} saw Paris and {n * 7} dogs sing, {n % 3} of Rome" for n in range(60)]
    result = state_alignment.align_states(models[0], models[0], texts, words=400)
    assert len(result.measures) == 3
    for found in result.measures.values():
        lost = found.unmatched_a if side == "a" else found.unmatched_b
        assert list(lost) == [2] and found.n_diagonal == 3
        assert [i == j for i, j in found.pairs] == [True] * 3
        across = found.score[2] if side == "a" else [row[2] for row in found.score]
        assert set(across) == {None}
    assert any("state 2 stays unmatched" in note for note in result.notes)


def test_a_model_is_matched_with_itself_by_every_measure(models):
    from embspace.between.state_alignment import align_states

    a, _ = models
    torch.manual_seed(0)
    texts = [f"cats {n} saw Paris and {n * 7} dogs sing, {n % 3} of Rome" for n in range(60)]
    result = align_states(a, a, texts, words=400)
    assert list(result.measures) == ["cka", "procrustes", "least_squares"]
    for name, found in result.measures.items():
        for layer in range(4):
            assert found.score[layer][layer] == pytest.approx(1, abs=1e-4)
        assert abs(result.shuffled[name] or 0) < 0.7
    assert len(result.rows()) == 3 * 16


def test_states_that_are_equal_are_not_told_apart(models, monkeypatch):
    """Two equal states give two matches that are equally good; all equal ones give no p."""
    from embspace.between import state_alignment

    taken = state_alignment._states
    texts = [f"cats {n} saw Paris and {n * 7} dogs sing, {n % 3} of Rome" for n in range(60)]

    def compared(same):
        def some_equal(*given):
            states = taken(*given)
            states[same] = states[same[0]].clone()
            return states

        monkeypatch.setattr(state_alignment, "_states", some_equal)
        return state_alignment.align_states(models[0], models[0], texts, words=400)

    n = models[0].n_layers + 1
    found = compared([1, 2])
    for match in found.measures.values():
        assert match.equally_good == 2 and match.diagonal == pytest.approx((1 + (n - 2) / n) / 2)
    assert sum("one of 2" in note for note in found.notes) == len(found.measures)
    for match in compared(list(range(n))).measures.values():
        assert match.p is None and match.diagonal is None
