"""A planted relation decides which reading becomes a layer's default."""

import embspace
from embspace.evidence.reading_choice import ChoosingReadings
from embspace.evidence.relation_sets import RelationSet, bundled_relations
from embspace.read.default_reading import default_reading
from embspace.read.reading import Reading

READINGS = (Reading(source="first-mlp", unit=True), Reading(unit=True))
TEXT = ["The farmer of France sold the calves.", "The miner kept the coal in Rome."]


def test_the_reading_that_finds_relations_is_kept_where_it_finds_them():
    model = embspace.load("sample-gpt2")
    sets = [one for one in bundled_relations() if one.name in ("animal-young", "trade-tool")]
    choosing = ChoosingReadings(model, TEXT, sets=sets, readings=READINGS)
    assert len(list(choosing)) == len(choosing)
    result = choosing.result()
    last = [one for one in result if one.layers == (3, 3)]
    first = [one for one in result if one.layers == (0, 0)]
    for band in (first, last):
        means = [one.recall.mean for one in band]
        assert len(band) == 2 and means == sorted(means, reverse=True)
    assert first[0].best == "0.5" and first[0].recall.mean > 0.8 and first[0].heads >= 1
    kept = choosing.keep(result)
    layers = {x for one in result if one.heads for x in range(one.layers[0], one.layers[1] + 1)}
    assert kept == len(layers)
    assert default_reading(model, 0) in READINGS


def test_without_a_relation_nothing_is_kept_and_the_advice_says_so(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    pairs = RelationSet("neighbours", tuple((f"#{i}", f"#{i + 7}") for i in range(260, 290)))
    choosing = ChoosingReadings(model, TEXT, sets=[pairs], readings=READINGS[1:])
    list(choosing)
    result = choosing.result()
    assert choosing.keep(result) == 0 and "No reading" in result.advice
