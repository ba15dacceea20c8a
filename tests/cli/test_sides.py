"""Sides on the command line give what the same readings give in Python."""

import json

import pytest

import embspace
from embspace.read.reading import COMMON, Reading

PLACE = ("--layer", 1, "--head", 2, "--circuit", "ov", "-k", 6, "--json")


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


@pytest.mark.parametrize(
    ("options", "reading", "same"),
    [
        ((), Reading(), False),  # heads of 8 leave unit rows no room
        (("--source", "embedding"), Reading(), False),
        (("--source", "embedding", "--centre"), Reading(centre=True), True),
        (
            ("--source", "first-mlp"),
            Reading(source="first-mlp", centre=True, unit=True, common=COMMON),
            True,
        ),
        (
            ("--source", "first-mlp", "--no-unit", "--common", "all", "--include-same"),
            Reading(source="first-mlp", centre=True),
            False,
        ),
        (
            ("--source", "token", "--common", 40, "--norm", "folded"),
            Reading(source="token", centre=True, unit=True, common=40, norm="folded"),
            True,
        ),
    ],
)
def test_heads_reads_through_the_sides_asked_for(run, tiny_gpt2, model, options, reading, same):
    found = json.loads(run("heads", tiny_gpt2, *PLACE, *options).stdout)
    expected = model.heads[1, 2].ov.read(reading).top_pairs(6, exclude_same=same)
    assert found == expected.to_dict()
    word = json.loads(run("heads", tiny_gpt2, *PLACE, *options, "--token", "#40").stdout)
    row = model.heads[1, 2].ov.read(reading).row("#40", 6, exclude_same=same)
    assert word["heads"][0]["pairs"] == row.to_dict()["pairs"]


def test_the_heading_says_which_reading_is_shown(run, tiny_gpt2):
    shown = run("heads", tiny_gpt2, "--source", "first-mlp", "--common", 50).stdout
    heading = " ".join(shown.split())
    assert "first-mlp → embedding, centred, unit rows, 50 common tokens" in heading
    assert "unit rows" not in run("heads", tiny_gpt2, "--source", "embedding").stdout


def test_neurons_vectors_and_tokens_take_the_same_sides(run, tiny_gpt2, model):
    options = ("--source", "first-mlp", "--common", 60, "--json")
    how = Reading(source="first-mlp", centre=True, unit=True, common=60)
    found = json.loads(run("ff", tiny_gpt2, "1.7", "-k", 4, *options).stdout)
    ff = model.ff[1].read(how)
    assert found["vectors"]["value"]["top"] == [t.to_dict() for t in ff.values[7].top_tokens(4).top]
    assert found["vectors"]["key"]["top"] == [t.to_dict() for t in ff.keys[7].top_tokens(4).top]
    found = json.loads(
        run("vectors", tiny_gpt2, "1.2", "--group", "v", "--index", 3, "-k", 4, *options).stdout
    )
    group = model.vectors(1, 2, "v").read(how)
    assert found == group[3].top_tokens(4).to_dict()
    found = json.loads(run("token", tiny_gpt2, "#250", "-k", 5, *options).stdout)
    expected = model.token("#250", 5, reading=how)[0].to_dict()
    assert found == expected
    best = found["heads"][0]
    circuit = model.heads[best["layer"], best["head"]]
    circuit = circuit.qk if "attention" in best["role"] or "attends" in best["role"] else circuit.ov
    rows = [circuit.read(how).row("#250", 1)[0], circuit.read(how).column("#250", 1)[0]]
    assert best["score"] in [pytest.approx(pair.score) for pair in rows]
