"""Which lines are fitted and scored: no text is on both sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import embspace
from embspace.errors import EmbspaceError, TextError
from embspace.text.splits import line_range, split
from embspace.text.text import Text


def texts(corpus: Text, lines) -> set[str]:
    return {corpus.lines[i] for i in lines}


@given(
    lines=st.lists(st.sampled_from([f"text {n}" for n in range(40)]), min_size=8, max_size=120),
    seed=st.integers(0, 2**63 - 1),
    share=st.floats(0.2, 0.8),
)
def test_a_drawn_split_has_every_text_once_on_one_side(lines, seed, share):
    corpus = Text(tuple(lines), "x")
    if len(set(lines)) < 5:
        return
    found = split(Text.read(corpus, seed=seed), share=share)
    fit, score = texts(corpus, found.fit), texts(corpus, found.score)
    assert not fit & score
    assert fit | score == set(lines)
    assert len(found.fit) == len(fit)
    assert len(found.score) == len(score) == round(share * len(set(lines)))
    assert found == split(Text.read(corpus, seed=seed), share=share)
    assert bool(found.notes) == (len(set(lines)) < len(lines))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.booleans())
def test_the_rest_has_no_text_of_the_lines_given(chosen, fitted):
    corpus = Text(("a", "b", "a", "c", "d", "b", "e", "f", "g", "a"), "x")
    found = split(Text.read(corpus, **{"fit" if fitted else "held_out": chosen}))
    given_lines, rest = (found.fit, found.score) if fitted else (found.score, found.fit)
    assert given_lines == tuple(chosen)
    assert not texts(corpus, given_lines) & texts(corpus, rest)
    assert texts(corpus, given_lines) | texts(corpus, rest) == set(corpus.lines)


def test_both_given_are_taken_as_they_are_and_repeats_are_named():
    corpus = Text(("a", "b", "a", "c"), "x")
    found = split(Text.read(corpus, fit=[3, 0], held_out=[2, 1]))
    assert (found.fit, found.score) == ((3, 0), (2, 1))
    assert found.notes == ("1 of the 2 lines to score are repeated among those to fit.",)


def test_a_share_of_nothing_scores_nothing():
    found = split(Text(("a", "b"), "x"), share=0)
    assert len(found.fit) == 2
    assert found.score == ()


@pytest.mark.parametrize(
    "options",
    [
        {"fit": [0, 1], "held_out": [1]},
        {"fit": [9]},
        {"held_out": [-1]},
        {"fit": []},
        {"held_out": 1.0},
        {"held_out": -0.1},
        {"held_out": 0.01},
        {"held_out": 0.99},
        {"seed": -1},
        {"fit": ["0"]},
    ],
)
def test_splits_that_cannot_be_are_refused(options):
    with pytest.raises(EmbspaceError):
        split(Text(("a", "b", "c"), "x", **options))


def test_ranges_of_lines_count_from_0_and_leave_out_the_end():
    corpus = Text(tuple("abcdef"), "x")
    assert line_range("2:4", corpus) == range(2, 4)
    assert line_range(":3", corpus) == range(3)
    assert line_range("3:", corpus) == range(3, 6)
    for wrong in ("", "3", "4:2", "-1:2", "2:2", "a:b", "2:7", "1:2:3", None):
        with pytest.raises(TextError):
            line_range(wrong, corpus)


def test_a_share_of_0_beside_lines_to_fit_scores_none(tiny_gpt2):
    corpus = Text(tuple(f"text {n}" for n in range(9)), "x")
    assert split(Text.read(corpus, fit=[3, 1]), share=0.0) == split(
        Text.read(corpus, fit=[3, 1]), share=0
    )
    assert split(Text.read(corpus, fit=[3, 1]), share=0.0).score == ()
    read = {}
    maps = embspace.fit(
        embspace.load(tiny_gpt2),
        Text.read(corpus, fit=[3, 1], held_out=0.0),
        progress=lambda what, done, total: read.update({what: total}),
    )
    assert "fit" in read and "score" not in read and maps.about["rows_scored"] == 0
    assert all(pair.r2 is None for pair in maps.pairs)
