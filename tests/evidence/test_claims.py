"""Each claim is judged by its own test over what was measured; a tie is no verdict."""

from typing import Any

import pytest

import embspace
from embspace.evidence.claims import (
    FAILS,
    HOLDS,
    PAPERS,
    TIED,
    VOID,
    Verdict,
    decide,
)
from embspace.evidence.comparisons import (
    Curve,
    LackingError,
    curve,
    every,
    everywhere,
    on_average,
    together,
)
from embspace.evidence.embedding_steps import Cast, embedding_steps
from embspace.evidence.jump_steps import jump_steps
from embspace.evidence.reproduction import CLAIMS as OF_PAPER
from embspace.text.text import Text

CLAIMS = {claim.id: claim for paper in PAPERS for claim in OF_PAPER[paper]}


def verdict(name: str, measured: dict[str, Any]) -> Verdict:
    return decide(CLAIMS[name], measured)


def test_every_claim_has_its_own_name_a_sentence_a_rule_and_a_step_that_measures_it(tiny_gpt2):
    model, text = embspace.load(tiny_gpt2), Text(("one two", "three four"), "given")
    steps = {
        "jump": jump_steps(model, text, None),
        "embedding": embedding_steps(Cast(model, text)),
    }
    for paper in PAPERS:
        for claim in OF_PAPER[paper]:
            assert CLAIMS[claim.id] is claim and claim.paper == paper
            assert claim.step in {step.name for step in steps[paper]}
            assert claim.says.endswith(".") and claim.rule


def test_the_papers_own_figures_stand_beside_ours():
    shown = " ".join(claim.number for claim in CLAIMS.values())
    for figure in ("28 to 45", "52 to 74", "62 to 82", "8 to 52", "−0.1, +1.1, −5.5, −8", "30 %"):
        assert figure in shown


# comparisons ---------------------------------------------------------------------------
A = Curve("a", {"0": 0.5, "1": 0.7})


@pytest.mark.parametrize(
    ("b", "holds", "said"),
    [
        ({"0": 0.4, "1": 0.1}, True, "2 of 2"),
        ({"0": 0.6, "1": 0.1}, False, "1 of 2; not at 0"),
        ({"0": 0.5, "1": 0.1}, None, "1 of 2; equal at 0"),
        ({"0": 0.5, "1": 0.8}, False, "0 of 2; not at 1; equal at 0"),
        ({"1": 0.1}, True, ""),
    ],
)
def test_everywhere_is_every_shared_place_and_a_tie_decides_nothing(b, holds, said):
    found = everywhere(A, Curve("b", b))
    assert found.holds is holds and said in found.ours
    turned = everywhere(Curve("b", b), A, smaller=True)
    assert turned.holds is holds


def test_averages_are_over_shared_places():
    b = Curve("b", {"0": 0.9, "1": 0.1, "2": 9.0})
    found = on_average(A, b, percent=True)
    assert found.holds and found.ours == "a 60.0%, b 50.0% (means)"
    assert on_average(A, Curve("b", {"0": 0.7, "1": 0.5})).holds is None


def test_what_was_not_measured_is_lacking():
    for b in ({}, {"7": 1.0}):
        with pytest.raises(LackingError):
            everywhere(A, Curve("b", b))
    with pytest.raises(LackingError, match="no p"):
        every("p", {}, bool)


@pytest.mark.parametrize(
    ("a", "b", "smaller", "holds", "close"),
    [
        ((0.4, 0.6), (0.1, 0.3), False, True, False),
        ((0.4, 0.6), (0.2, 0.45), False, True, True),
        ((0.4, 0.6), (0.1, 0.3), True, False, False),
        ((0.4, 0.6), (0.2, 0.45), True, False, True),
    ],
)
def test_a_call_is_close_where_the_intervals_that_decide_it_overlap(a, b, smaller, holds, close):
    curves = [
        Curve(name, {"0": sum(ends) / 2}, {"0": ends[0]}, {"0": ends[1]})
        for name, ends in (("a", a), ("b", b))
    ]
    for compare in (everywhere, on_average):
        found = compare(*curves, smaller=smaller)
        assert (found.holds, found.close) == (holds, close)


def test_one_clear_failure_decides_whatever_the_others():
    values = {"a": {"0": 0.5, "1": 0.1}, "b": {"0": 0.55, "1": 0.9}}
    curves = [
        Curve(n, x, *({k: v + e for k, v in x.items()} for e in (-0.1, 0.1)))
        for n, x in values.items()
    ]
    found = everywhere(*curves)
    assert found.holds is False and not found.close


def test_rows_without_a_number_or_an_interval_are_left_out():
    rows = {
        "0": {"p": 0.5, "p_interval": [0.2, 0.8]},
        "1": {"p": 0.6, "p_interval": [None, None]},
        "2": {"p": None},
        "3": {"p": float("nan")},
    }
    found = curve("a", rows, "p")
    assert found.values == {"0": 0.5, "1": 0.6} and found.low == {"0": 0.2}
    assert found.ends("0") == (0.2, 0.8) and found.ends("1") == (0.6, 0.6)


def test_all_of_several_fail_with_one_and_are_undecided_with_a_tie():
    right, wrong = (everywhere(A, Curve("b", {"0": v})) for v in (0.1, 0.9))
    tie = everywhere(A, Curve("b", {"0": 0.5}))
    assert together([right, right]).holds
    assert together([right, tie]).holds is None
    assert together([tie, wrong]).holds is False


# the second paper ----------------------------------------------------------------------
def by_layer(values: list[float], measure: str = "precision@1") -> dict[str, dict[str, float]]:
    return {str(layer): {measure: value} for layer, value in enumerate(values)}


def test_mat_over_id_needs_every_layer():
    layers = {"mat": by_layer([0.4, 0.6]), "id": by_layer([0.1, 0.5])}
    assert verdict("precision-1", {"layers": layers}).verdict == HOLDS
    layers["id"]["1"]["precision@1"] = 0.6
    assert verdict("precision-1", {"layers": layers}).verdict == TIED
    assert verdict("precision-5", {"layers": layers}).verdict == VOID


def test_early_is_half_the_depth():
    layers = {
        kind: by_layer([0.1, 0.2, v, 0.9], "precision@10")
        for kind, v in (("mat", 0.5), ("id", 0.3))
    }
    found = verdict("early", {"layers": layers})
    assert found.verdict == HOLDS and found.ours == "mat 50.0%, id 30.0% at layer 2"


def test_transfer_takes_the_other_text_and_shows_the_change():
    scores = {
        "a": {"a": by_layer([0.9]), "b": by_layer([0.4])},
        "b": {"a": by_layer([0.5]), "b": by_layer([0.9])},
    }
    measured = {
        "scores": scores,
        "id": {"a": by_layer([0.45]), "b": by_layer([0.3])},
        "change": {"a": {"precision@1": -0.055}, "b": {"precision@1": 0.011}},
    }
    found = verdict("transfer", measured)
    assert found.verdict == HOLDS and "2 of 2" in found.ours and "-5.5, +1.1 points" in found.ours
    measured["id"]["b"] = by_layer([0.41])
    assert verdict("transfer", measured).verdict == FAILS


def test_linear_parts_are_compared_with_one_map_from_layer_7_of_24_on():
    parts = {
        name: {str(at): {"precision@1": late if at >= 7 else 0.0} for at in (0, 6, 9, 15)}
        for name, late in (("attn", 0.9), ("ff", 0.8), ("norms", 0.7), ("blocks", 0.6))
    }
    parts["blocks"]["0"]["precision@1"] = 0.5
    measured = {"parts": parts, "r2": {"attn": {str(at): 0.5 for at in range(24)}}}
    assert verdict("parts-one-map", measured).verdict == HOLDS
    assert verdict("attention-ff", measured).verdict == HOLDS
    parts["norms"]["9"]["precision@1"] = 0.5
    found = verdict("parts-one-map", measured)
    assert found.verdict == FAILS and "both norms" in found.ours and "not at 9" in found.ours


def test_nothing_saved_by_either_is_undecided():
    choices = [
        {"rule": "fixed", "map": m, "saved_at_target": 0.0, "saved_at_target_interval": [0, 0]}
        for m in ("mat", "id")
    ]
    assert verdict("exit-fixed", {"choices": choices}).verdict == TIED
    assert verdict("exit", {"choices": choices}).verdict == VOID


def test_schedules_in_turn_are_compared_where_they_differ_from_one_jump():
    def row(name: str, n_run: int, schedule: str, precision: float) -> dict[str, Any]:
        return {"name": name, "n_run": n_run, "schedule": schedule, "precision@1": precision}

    schedules = [
        row("single", 1, "0 →", 0.9),
        row("r2", 1, "0 →", 0.9),
        row("single", 2, "0 1 →", 0.5),
        row("r2", 2, "0 → 3", 0.6),
        row("rr 1:1", 2, "0 → 2", 0.1),
    ]
    found = verdict("alternation", {"schedules": schedules})
    assert found.verdict == HOLDS and found.ours == "in turn 60.0%, one jump 50.0%"
    assert not found.close
    for each in schedules:
        each["precision_interval"] = [each["precision@1"] - 0.2, each["precision@1"] + 0.2]
    assert verdict("alternation", {"schedules": schedules}).close
    assert verdict("alternation", {"schedules": schedules[:3]}).verdict == VOID


# the first paper -----------------------------------------------------------------------
def points(vectors: str, *cosines: tuple[int, float, float]) -> dict[str, Any]:
    return {
        "points": [
            {"vectors": vectors, "inverse": name, "k": k, "cosine": value}
            for k, *both in cosines
            for name, value in zip(("transpose", "pinv"), both, strict=True)
        ]
    }


@pytest.mark.parametrize(
    ("cosines", "expected", "said"),
    [
        (
            ((10, 0.7, 0.4), (500, 0.6, 0.5), (1000, 0.5, 0.9), (9000, 0.1, 1.0)),
            HOLDS,
            "from 1,000",
        ),
        (((10, 0.7, 0.4), (500, 0.6, 0.8), (1000, 0.5, 0.9), (9000, 0.1, 1.0)), FAILS, "from 500"),
        (((10, 0.7, 0.4), (500, 0.9, 0.8), (9000, 1.0, 0.9)), FAILS, "10, 500, 9,000"),
        (((10, 0.5, 0.5), (500, 0.6, 0.5), (9000, 0.1, 1.0)), TIED, ""),
        (((300, 0.1, 1.0),), VOID, ""),
    ],
)
def test_inverses_are_judged_by_where_they_cross(cosines, expected, said):
    for kind in ("normal", "values", "states"):
        found = verdict(f"inverse-{kind}", points(kind, *cosines))
        assert found.verdict == expected and said in found.ours
    assert verdict("inverse-normal", points("states", *cosines)).verdict == VOID


def group(match: list[int | None], p: float | None) -> dict[str, Any]:
    n = [at == i for i, at in enumerate(match) if at is not None]
    return {"match": match, "p": p, "diagonal": sum(n) / len(n)}


def test_a_group_matches_i_to_i_with_most_layers_on_the_diagonal():
    groups = {
        "K": {
            "vocabulary": group([0, 1, 2, 3, 5, 4], 0.008),
            "feature": group([5, 4, 3, 2, 1, 0], 0.9),
        },
        "W_Q": {"vocabulary": group([0, 1, 2, 4, 5, 3], 0.033), "feature": None},
    }
    found = verdict("align-vocabulary", {"groups": groups})
    assert found.verdict == FAILS
    assert found.ours == "K 4 of 6 (p 0.008), W_Q 3 of 6 (p 0.033); not W_Q"
    assert verdict("align-vocabulary", {"groups": {"K": groups["K"]}}).verdict == HOLDS
    assert verdict("align-feature", {"groups": groups}).verdict == HOLDS
    assert verdict("align-both", {"groups": groups}).verdict == HOLDS


def test_a_group_whose_p_is_unknown_decides_nothing():
    groups = {"K": {"vocabulary": group([0, 1], None), "feature": None}}
    for name in ("align-vocabulary", "align-feature", "align-both"):
        assert verdict(name, {"groups": groups}).verdict == VOID


def test_a_share_of_models_is_not_judged_by_the_cuts_of_one():
    best = {"scoring": {"accuracy": 0.8, "low": 0.7, "high": 0.9}}
    found = verdict("stitch-70", {"best": best, "chance": 0.5, "share_reached": 0.4})
    assert found.verdict == VOID and "80.0%" in found.reason and "seeds" in found.reason
    assert verdict("stitch-chance", {"best": best, "chance": 0.5}).verdict == HOLDS
    assert verdict("stitch-chance", {"best": best, "chance": 0.7}).verdict == TIED


def test_a_topic_is_found_beyond_chance_after_all_parts_are_counted():
    def found(*p: float) -> dict[str, Any]:
        vectors = [{"part": f"part {n}", "p_best": x} for n, x in enumerate(p)]
        return {"words": ["Paris", "Rome"], "vectors": vectors}

    assert verdict("topic", found(0.02, 0.4)).verdict == HOLDS
    assert verdict("topic", found(0.03, 0.4)).verdict == FAILS
    assert verdict("topic", found()).verdict == VOID


def test_words_stand_out_by_the_larger_of_both_p_values():
    words = {"W_Q": {"p": 0.01, "p_turned": 0.2}, "K": {"p": 0.01, "p_turned": None}, "V": None}
    found = verdict("tuned-carry", {"words": words})
    assert found.verdict == FAILS and "not at W_Q" in found.ours
    assert verdict("tuned-silent", {"words": words}).verdict == VOID


def test_related_pairs_are_of_keys_and_values_alone():
    rows = [
        {"kind": kind, "layer": layer, "share": share, "share_shuffled": 0.1}
        for kind, share in (("gate–value", 0.3), ("up–value", 0.2), ("W_V–W_O", 0.0))
        for layer in (0, 1)
    ]
    found = verdict("related", {"layers": rows})
    assert found.verdict == HOLDS and found.ours == "related 25.0%, shuffled 10.0% (means)"
    assert set(found.numbers["related"]) == {
        f"{k} {l}" for k in ("gate–value", "up–value") for l in "01"
    }


def test_what_was_not_done_is_no_verdict():
    found = decide(CLAIMS["transfer"], None, "no second text")
    assert (found.verdict, found.reason) == (VOID, "no second text")
    assert found.to_dict()["reason"] == "no second text" and "judge" not in found.to_dict()


def test_keys_tell_apart_all_that_decides_a_step(tiny_gpt2, tiny_llama):
    one, other = embspace.load(tiny_gpt2), embspace.load(tiny_llama)
    texts = [Text(("one two",), "a"), Text(("one three",), "a")]
    keys = {
        step.key
        for model in (one, other)
        for text in texts
        for seed in (0, 1)
        for step in jump_steps(model, text, None, seed=seed)
    }
    assert len(keys) == 2 * 2 * 2 * 5
    same = jump_steps(one, Text(("one two",), "elsewhere"), None)
    assert same[0].key == jump_steps(one, texts[0], None)[0].key


def test_only_weights_are_read_where_that_is_asked():
    steps = embedding_steps(Cast(embspace.load("sample-gpt2"), None))
    assert {s.name for s in steps if not s.why_not} == {"pairs", "topic", "inverse"}
    assert all(s.why_not for s in steps if s.name in ("states", "logits", "stitch"))
