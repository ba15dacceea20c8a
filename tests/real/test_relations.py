"""Relations of a real model's heads equal an independent measurement."""

import json

import pytest

import embspace
from embspace.evidence.relation_sets import RelationSet
from embspace.evidence.relations import relations

ONE_IN_A_HUNDRED = 0.01


@pytest.fixture
def sets(smollm2, reference):
    """The relations of the reference, from the word analogies they were made of."""
    file = smollm2.parent / "wiki" / "questions-words.txt"
    if not file.is_file():
        pytest.skip("the word analogies are not on this machine")
    wanted = json.loads((reference / "relations.json").read_text())["relations"]
    pairs, name = {}, ""
    for line in file.read_text().splitlines():
        if line.startswith(":"):
            name = line[1:].strip()
        elif name in wanted:
            a, b, c, d = line.split()
            pairs.setdefault(name, []).extend([(a, b), (c, d)])
    return [RelationSet(name, tuple(found), wanted[name]["k"]) for name, found in pairs.items()]


@pytest.mark.slow
def test_shares_of_all_heads_equal_the_reference(smollm2, reference, sets):
    wanted = json.loads((reference / "relations.json").read_text())["relations"]
    found = relations(embspace.load(smollm2), sets, source="first-mlp").relations
    for name, expected in wanted.items():
        assert found[name].pairs == expected["pairs"]
        for key in ("promote", "suppress"):
            ours = [share for row in getattr(found[name], key) for share in row]
            assert len(ours) == 270
            assert ours == pytest.approx(expected[key], abs=ONE_IN_A_HUNDRED), (name, key)
