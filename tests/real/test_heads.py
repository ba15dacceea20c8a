"""Heads of real models equal an independent float64 brute force."""

import json

import pytest

import embspace

CLOSE = 1e-5


@pytest.mark.parametrize("name", ["smollm2", "minilm"])
def test_strongest_pairs_equal_the_float64_reference(name, reference, request):
    model = embspace.load(request.getfixturevalue(name))
    answers = json.loads((reference / "heads.json").read_text())[name]
    for place, expected in answers.items():
        layer, head, circuit = place.split(".")
        found = model.heads[int(layer), int(head)].circuit(circuit).top_pairs(len(expected))
        for pair, (i, j, score) in zip(found.pairs, expected, strict=True):
            assert pair.score == pytest.approx(score, rel=CLOSE)
            tied = [e for e in expected if e[2] == pytest.approx(score, rel=1e-12)]
            assert (pair.i, pair.j) == (i, j) or len(tied) > 1, place


def test_neighbours_of_a_capital_are_capitals(smollm2):
    (reading,) = embspace.load(smollm2).token(" Paris", 8)
    labels = {token.label for token in reading.neighbours}
    assert {"·London", "·France", "·Berlin"} <= labels


def test_neurons_of_comparison_are_related_by_key_and_value(smollm2):
    model = embspace.load(smollm2)
    for absolute, neuron, words in (
        (False, 204, {"·more", "·better", "·less"}),
        (True, 172, {"·smallest", "·largest", "·greatest"}),
    ):
        related = model.related(20, absolute=absolute)
        first = related.pairs[0]
        assert (first.neuron, first.key) == (neuron, "gate")
        assert words <= set(first.shared)
        for key, share in related.share.items():
            assert share > 2 * related.share_shuffled[key]


def test_alphanumeric_tokens_are_ascii_as_in_the_papers_code(smollm2):
    vocabulary = embspace.load(smollm2).vocabulary
    ascii_, every = (int(vocabulary.mask(name).sum()) for name in ("alnum", "unicode-alnum"))
    assert (ascii_, every - ascii_) == (47_088, 435)


@pytest.mark.slow
def test_a_head_of_a_quarter_million_tokens_completes(gemma3):
    found = embspace.load(gemma3).heads[9, 1].vo.top_pairs(20)
    scores = [pair.score for pair in found.pairs]
    assert len(scores) == 20 and scores == sorted(scores, reverse=True)
