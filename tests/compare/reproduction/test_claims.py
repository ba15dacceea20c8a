"""A claim is judged by the numbers of its step, by the rule that stands beside it, and no other."""

import math
from dataclasses import replace

import pytest

import embspace
from embspace.compare.reproduction.claims import FAILS, HOLDS, PAPERS, VOID, Claim, decide
from embspace.compare.reproduction.claims import read_claims as claims_of
from embspace.compare.reproduction.embedding import Cast, embedding_steps
from embspace.compare.reproduction.jump import jump_steps
from embspace.compare.reproduction.quantities import select
from embspace.compare.reproduction.rules import judge, parse
from embspace.errors import EmbspaceError
from embspace.models.corpus import Corpus

EVERY = [claim for paper in PAPERS for claim in claims_of(paper)]


@pytest.mark.parametrize("claim", EVERY, ids=lambda claim: claim.id)
def test_a_rule_speaks_of_what_is_measured(claim):
    named = {name for each in parse(claim.rule) for name in each.names}
    assert named and named <= set(claim.quantities)
    assert claim.section and claim.says.endswith(".")


def test_every_claim_has_its_own_name_and_a_step_that_measures_it(tiny_gpt2):
    model, text = embspace.load(tiny_gpt2), Corpus(("one two", "three four"), "given")
    steps = {
        "jump": jump_steps(model, text, None),
        "embedding": embedding_steps(Cast(model, text)),
    }
    assert len({claim.id for claim in EVERY}) == len(EVERY)
    for claim in EVERY:
        assert claim.step in {step.name for step in steps[claim.paper]}


def claim(rule: str, *, percent: bool = False, **quantities: str) -> Claim:
    return Claim("x", "jump", "§3", "", "It is so.", "", "score", quantities, rule, percent)


DATA = {
    "layers": {"mat": {"0": {"p": 0.5}, "1": {"p": 0.7}}, "id": {"0": {"p": 0.6}, "1": {"p": 0.1}}},
    "rows": [
        {"kind": "gate", "layer": 0, "share": 0.2},
        {"kind": "up", "layer": 0, "share": 0.3},
        {"kind": "value", "layer": 0, "share": 0.4},
        {"kind": "value", "layer": 1, "share": None},
    ],
    "p": {"W_Q": 0.01, "V": 0.5, "K": True, "W_O": math.nan},
    "chance": 0.5,
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("layers/mat/*/p", {"0": 0.5, "1": 0.7}),
        ("layers/mat|id/1/p", {"mat": 0.7, "id": 0.1}),
        ("rows/kind=key|gate|up/share", {"gate 0": 0.2, "up 0": 0.3}),
        ("rows/kind=value/share", {"0": 0.4}),
        ("p/W_Q|W_K|V|K|W_O", {"W_Q": 0.01, "V": 0.5}),
        ("chance", {"": 0.5}),
        ("rows/kind=nothing/share", {}),
        ("no/such/path", {}),
        ("chance/deeper", {}),
    ],
)
def test_paths_find_numbers_and_nothing_else(path, found):
    assert select(DATA, path) == found


def test_everywhere_means_at_every_place_and_on_average_does_not():
    numbers = {n: select(DATA, f"layers/{n}/*/p") for n in ("mat", "id")}
    strict = judge("mat > id everywhere", numbers)
    assert strict and (strict.holds, strict.n_right, strict.n, strict.wrong) == (
        False,
        1,
        2,
        ("0",),
    )
    mean = judge("mat > id on average", numbers)
    assert mean and mean.holds
    assert judge("mat > id on average and mat > id everywhere", numbers) != mean


def test_places_that_only_one_side_has_are_not_compared():
    found = judge("a > b everywhere", {"a": {"0": 1.0, "1": 0.0}, "b": {"0": 0.5}})
    assert found and (found.holds, found.n) == (True, 1)
    assert judge("a > b everywhere", {"a": {"0": 1.0}, "b": {"1": 0.5}}) is None
    assert judge("a > 0.5 everywhere", {"a": {}}) is None


@pytest.mark.parametrize(
    "rule", ["a ~ b", "a > b sometimes", "a >", "", "a > b everywhere or c > d"]
)
def test_other_rules_are_refused(rule):
    with pytest.raises(EmbspaceError, match="no rule"):
        parse(rule)


def test_many_numbers_need_to_be_told_how_to_compare():
    with pytest.raises(EmbspaceError, match="everywhere or on average"):
        judge("a > 0.5", {"a": {"0": 1.0, "1": 1.0}})


def test_a_verdict_names_the_places_where_the_rule_fails():
    found = decide(claim("mat > id everywhere", mat="layers/mat/*/p", id="layers/id/*/p"), DATA)
    assert found.verdict == FAILS
    assert found.ours == "mat 0.600, id 0.350 (means), 1 of 2; not at 0"
    assert found.numbers["mat"] == {"0": 0.5, "1": 0.7}


def test_shares_are_shown_as_such():
    found = decide(claim("chance >= 0.5", chance="chance", percent=True), DATA)
    assert (found.verdict, found.ours) == (HOLDS, "chance 50.0%")


@pytest.mark.parametrize(
    ("rule", "a", "b", "holds", "close"),
    [
        ("a > b everywhere", (0.4, 0.6), (0.1, 0.3), True, False),
        ("a > b everywhere", (0.4, 0.6), (0.2, 0.45), True, True),
        ("a < b everywhere", (0.4, 0.6), (0.1, 0.3), False, False),
        ("a < b everywhere", (0.4, 0.6), (0.2, 0.45), False, True),
        ("a > b on average", (0.4, 0.6), (0.1, 0.3), True, False),
        ("a > b on average", (0.4, 0.6), (0.2, 0.45), True, True),
        ("a >= 0.3 everywhere", (0.4, 0.6), (0, 0), True, False),
        ("a >= 0.45 everywhere", (0.4, 0.6), (0, 0), True, True),
    ],
)
def test_a_call_is_close_where_the_intervals_that_decide_it_overlap(rule, a, b, holds, close):
    ends = {"a": a, "b": b}
    numbers = {name: {"0": sum(pair) / 2, "1": sum(pair) / 2} for name, pair in ends.items()}
    bounds = {n: tuple({"0": pair[k], "1": pair[k]} for k in (0, 1)) for n, pair in ends.items()}
    found = judge(rule, numbers, bounds)
    assert found and (found.holds, found.close) == (holds, close)


def test_one_clear_failure_decides_whatever_the_others():
    numbers = {"a": {"0": 0.5, "1": 0.1}, "b": {"0": 0.55, "1": 0.9}}
    bounds = {
        n: tuple({k: v + e for k, v in x.items()} for e in (-0.1, 0.1)) for n, x in numbers.items()
    }
    found = judge("a > b everywhere", numbers, bounds)
    assert found and not found.holds and not found.close


@pytest.mark.parametrize(
    ("ends", "row"),
    [
        ("interval", {"mean": 0.5, "mean_interval": [0.2, 0.8]}),
        ("estimate", {"mean": 0.5, "low": 0.2, "high": 0.8}),
    ],
)
def test_ends_of_intervals_are_found_beside_their_numbers(ends, row):
    one = replace(claim("a > 0.4", a="x/mean"), ends=ends)
    assert decide(one, {"x": row}).close
    assert not decide(replace(one, rule="a > 0.1"), {"x": row}).close


def test_what_was_not_measured_is_no_verdict():
    not_done = decide(claim("a > 1", a="chance"), None, "no second text")
    assert (not_done.verdict, not_done.reason) == (VOID, "no second text")
    lacking = decide(claim("some_part > 1", some_part="rows/kind=none/share"), DATA)
    assert lacking.verdict == VOID and "some_part" in lacking.reason
    assert "some_part" in lacking.to_dict()["numbers"]


def test_keys_tell_apart_all_that_decides_a_step(tiny_gpt2, tiny_llama):
    one, other = embspace.load(tiny_gpt2), embspace.load(tiny_llama)
    texts = [Corpus(("one two",), "a"), Corpus(("one three",), "a")]
    keys = {
        step.key
        for model in (one, other)
        for text in texts
        for seed in (0, 1)
        for step in jump_steps(model, text, None, seed=seed)
    }
    assert len(keys) == 2 * 2 * 2 * 5
    same = jump_steps(one, Corpus(("one two",), "elsewhere"), None)
    assert same[0].key == jump_steps(one, texts[0], None)[0].key


def test_only_weights_are_read_where_that_is_asked(tiny_gpt2):
    steps = embedding_steps(Cast(embspace.load(tiny_gpt2), None))
    assert {s.name for s in steps if not s.why_not} == {"pairs", "inverse"}
    assert all(s.why_not for s in steps if s.name in ("states", "logits", "stitch"))
