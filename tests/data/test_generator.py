"""The writer of the sample corpora: equal for equal seeds, true to its facts, in two styles."""

from __future__ import annotations

import re
from collections import Counter

import embspace_data
import pytest
from embspace_data import inflect, lexicon
from embspace_data.frames import compile_frame, frames


def test_equal_seeds_write_equal_text_and_other_seeds_do_not() -> None:
    first = embspace_data.sentences("story", 200, seed=3)
    assert first == embspace_data.sentences("story", 200, seed=3)
    assert len(set(first) & set(embspace_data.sentences("story", 200, seed=4))) < 20


def test_sentences_are_as_many_as_asked_and_all_different() -> None:
    found = embspace_data.sentences("reference", 2_000, seed=0)
    assert len(found) == len(set(found)) == 2_000


@pytest.mark.parametrize("style", embspace_data.STYLES)
def test_no_field_or_choice_is_left_unfilled(style: str) -> None:
    text = "\n".join(embspace_data.sentences(style, 3_000, seed=1))
    assert not re.search(r"[{}()|+]|  | [,.]", text)


@pytest.mark.parametrize("style", embspace_data.STYLES)
def test_sentences_open_with_a_capital_and_close_with_a_mark(style: str) -> None:
    for sentence in embspace_data.sentences(style, 1_000, seed=2):
        assert re.match(r'"?[A-Z]', sentence), sentence
        assert re.search(r'[.?!]"?$', sentence), sentence


def test_the_two_styles_differ_in_words_and_marks() -> None:
    reference = embspace_data.sentences("reference", 2_000, seed=0)
    story = embspace_data.sentences("story", 2_000, seed=0)
    assert not any('"' in sentence for sentence in reference)
    assert sum('"' in sentence for sentence in story) > 400
    assert sum(" said " in sentence for sentence in reference) == 0
    shared = {re.sub(r"[A-Z]?[a-z]+", "x", text) for text in reference}
    assert len(shared & {re.sub(r"[A-Z]?[a-z]+", "x", text) for text in story}) < len(shared) / 2


def test_an_unknown_style_or_split_is_refused_with_what_was_expected() -> None:
    with pytest.raises(ValueError, match="reference, story"):
        embspace_data.sentences("poetry", 1)
    with pytest.raises(ValueError, match="train or test"):
        embspace_data.sentiment("dev", 1)


def test_most_facts_about_countries_are_told_in_the_text() -> None:
    text = embspace_data.sentences("reference", 20_000, seed=5)
    together = [
        any(left in sentence and right in sentence for sentence in text)
        for left, right in embspace_data.facts()["country-capital"]
    ]
    assert sum(together) == len(together)


def test_every_relation_has_distinct_pairs_and_every_pair_of_file_a_frame() -> None:
    for name, pairs in embspace_data.facts().items():
        assert len(pairs) == len(set(pairs)) > 6, name
    for style in embspace_data.STYLES:
        assert set(lexicon.relations()) | set(lexicon.tables()) <= set(frames(style))


def test_reviews_are_balanced_labelled_and_split_without_shared_text() -> None:
    train = embspace_data.sentiment("train", 1_000)
    test = embspace_data.sentiment("test", 1_000)
    assert not {text for text, _ in train} & {text for text, _ in test}
    counts = Counter(label for _, label in train)
    assert set(counts) == {"negative", "positive"}
    assert min(counts.values()) > 400


@pytest.mark.parametrize(
    ("word", "expected"),
    [("apple", "an"), ("university", "a"), ("hour", "an"), ("unfunny", "an"), ("euro", "a")],
)
def test_the_article_follows_the_sound(word: str, expected: str) -> None:
    assert inflect.article(word) == expected


def test_inflection_follows_rules_and_exceptions() -> None:
    assert [inflect.plural(w) for w in ("city", "knife", "box", "mouse", "boy")] == [
        "cities", "knives", "boxes", "mice", "boys",
    ]  # fmt: skip
    assert [inflect.verb_form("stir", f) for f in ("s", "ed", "ing")] == [
        "stirs", "stirred", "stirring",
    ]  # fmt: skip
    assert [inflect.verb_form("write", f) for f in ("s", "ed", "en", "ing")] == [
        "writes", "wrote", "written", "writing",
    ]  # fmt: skip
    assert inflect.verb_form("visit", "ed") == "visited"
    assert [inflect.degree_form("big", f) for f in ("er", "est")] == ["bigger", "biggest"]
    assert inflect.degree_form("happy", "est") == "happiest"


def test_a_frame_tells_the_fields_it_asks_for() -> None:
    frame = compile_frame("{a animal} (sleeps|hides in {a home}) (today|).")
    assert frame.fields == {"animal", "home"}
