"""Heads of the bundled GPT-2 hold facts of the text, read with no forward pass."""

from collections import defaultdict

import embspace_data
import pytest
import torch

import embspace
from embspace.read.pairs import top_pairs

KINDS = [
    "trade",
    "animal",
    "instrument",
    "sport",
    "science",
    "tool",
    "country",
    "month",
    "container",
    "material",
    "thing",
    "food",
]


@pytest.mark.parametrize(("layer", "head"), [(0, 5), (3, 3)])
def test_the_strongest_pairs_of_two_heads_are_facts_far_above_chance(layer: int, head: int) -> None:
    """Among words of facts, 300 of a million pairs: a chance draw holds fewer than two facts."""
    model = embspace.load("sample-gpt2")
    facts, words = defaultdict(set), set()
    for relation, pairs in embspace_data.facts().items():
        for a, b in pairs:
            facts[a, b].add(relation)
            facts[b, a].add(relation)
            words |= {a, b} if relation.split("-")[0] in KINDS else set()
    texts = model.vocabulary.texts
    allowed = torch.tensor([bool(t) and t[0] == " " and t[1:] in words for t in texts])
    left, right = model.heads[layer, head].vo.factors
    found = top_pairs(left, right, 300, rows=allowed, columns=allowed, exclude_same=True)
    named = [(texts[i][1:], texts[j][1:]) for i, j in zip(found.i, found.j, strict=True)]
    by_chance = 300 * len(facts) / int(allowed.sum()) ** 2
    assert by_chance < 2
    assert sum(pair in facts for pair in named) > 15 * by_chance
