"""Early exit counted: against row-by-row loops and separate forward passes."""

import math

import pytest
import torch
from transformers import GPT2Config

import embspace
from embspace.errors import EmbspaceError, TextError
from embspace.live import rebuilt as replay
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.decoding import rank_of
from embspace.maps.fit import fit
from embspace.shorten import early_exit as exits_module
from embspace.shorten.early_exit import exits
from embspace.shorten.exit_rules import (
    NEVER,
    confidence_exits,
    histogram,
    margins,
    ranks_at,
    threshold,
)
from embspace.shorten.halves import halves
from embspace.shorten.outcomes import Outcomes, gap_of
from embspace.shorten.planner import LEAST, Planner, Way, candidates, front
from embspace.text.passages import passages
from embspace.text.text import Text

L = 5


def outcomes_of(n=400, seed=0, sure=1.0):
    """Random gaps that grow with depth, and ranks that are 0 more often where the gap is large."""
    random = torch.Generator().manual_seed(seed)
    depth = torch.arange(L + 1) / L
    gap = (torch.rand(n, L + 1, generator=random) * (0.3 + 0.7 * depth) * sure).double()
    miss = torch.rand(n, L + 1, generator=random) > 0.55 + 0.45 * gap
    rank = miss.long() * torch.randint(1, 9, (n, L + 1), generator=random)
    rank[:, L] = 0
    positions = torch.randint(0, 30, (n,), generator=random)
    return Outcomes(gap, rank, positions, torch.arange(n) // 2)


@pytest.mark.parametrize("lam", [-0.2, 0.0, 0.3, 0.77, 1.0, NEVER])
@pytest.mark.parametrize("layers", [None, [2, 4], []])
def test_confidence_exits_are_those_of_a_loop_over_rows(lam, layers):
    outcomes = outcomes_of()
    n = 7.3
    found = confidence_exits(margins(outcomes, n, layers), lam)
    allowed = range(1, L) if layers is None else layers
    for row in range(len(outcomes)):
        t = int(outcomes.positions[row])
        bar = 0.9 * lam + 0.1 * math.exp(-4 * t / n)
        sure = [l for l in allowed if float(outcomes.gap[row, l]) > bar]
        assert int(found[row]) == (sure[0] if sure else L)
    assert sum(histogram(found, L)) == len(outcomes)


def test_nobody_leaves_at_the_largest_lambda_whatever_the_position():
    assert all(threshold(NEVER, t, 10.0) > 1 for t in (0, 1, 1000))
    sure = outcomes_of()
    sure.gap[:] = 1.0
    assert set(confidence_exits(margins(sure, 9.0), NEVER).tolist()) == {L}


def test_gap_and_rank_are_those_of_a_sorted_list():
    logits = torch.randn(20, 31, generator=torch.Generator().manual_seed(1))
    final = torch.randn(20, 31, generator=torch.Generator().manual_seed(2)).round()
    for row, (gap, top, rank) in enumerate(
        zip(gap_of(logits), logits.argmax(1), rank_of(logits.argmax(1), final), strict=True)
    ):
        p = sorted(logits[row].softmax(0).tolist(), reverse=True)
        assert float(gap) == pytest.approx(p[0] - p[1], abs=1e-6)
        order = sorted(range(31), key=lambda i: (-float(final[row, i]), i))
        assert order.index(int(top)) == int(rank)


@pytest.mark.parametrize("rule", ["fixed", "confidence"])
@pytest.mark.parametrize("target", [0.7, 0.9, 0.95, 1.0])
def test_the_choice_is_the_cheapest_of_all_ways_that_reach_the_target(rule, target):
    outcomes = outcomes_of()
    planner = Planner("mat", outcomes, 8.0, None)
    planned = planner.choose(rule, target)
    best = None
    ats = range(L + 1) if rule == "fixed" else candidates(planner.margin)
    for at in ats:
        way = Way("mat", rule, at)
        left = way.exits(outcomes, planner.margin)
        same = float((ranks_at(outcomes, left) == 0).double().mean())
        blocks = float(left.double().mean())
        if same >= target - 1e-12 and (best is None or blocks < best):
            best = blocks
    assert planned.blocks == pytest.approx(best) and planned.agreement >= target - 1e-12
    assert planned.low <= planned.way.at <= planned.high


def test_finer_lambdas_than_the_candidates_save_hardly_more():
    outcomes = outcomes_of(800)
    planner = Planner("mat", outcomes, 8.0, None)
    chosen = planner.choose("confidence", 0.9)
    best = min(
        float(left.double().mean())
        for lam in torch.linspace(LEAST, 1.1, 3000).tolist()
        if ((left := confidence_exits(planner.margin, lam)) is not None)
        and float((ranks_at(outcomes, left) == 0).double().mean()) >= 0.9
    )
    assert chosen.blocks - best < 0.05


def test_the_front_is_what_no_way_beats():
    points = [(Way("mat", "fixed", n), b, a) for n, (b, a) in enumerate(
        [(1, 0.5), (2, 0.4), (2, 0.6), (3, 0.6), (4, 0.9), (1, 0.3), (5, 0.9)]
    )]  # fmt: skip
    kept = {
        p[0] for p in points if not any(
            q[1] <= p[1] and q[2] >= p[2] and (q[1], q[2]) != (p[1], p[2]) for q in points
        )
    }  # fmt: skip
    assert set(front(points)) == kept
    assert [way.at for way in front(points)] == [0, 2, 4]


@pytest.fixture(scope="module")
def gpt2(tiny_gpt2):
    return embspace.load(tiny_gpt2)


@pytest.fixture(scope="module")
def maps(gpt2, corpus):
    return fit(gpt2, Text.read(corpus, fit=range(60), held_out=range(60, 70)))


@pytest.fixture(scope="module")
def found(gpt2, maps, corpus):
    return exits(gpt2, maps, corpus, target=0.5, lambdas=[0.1, 0.4, NEVER])


def test_every_point_is_what_passes_over_the_scoring_lines_say(gpt2, maps, corpus, found):
    """Each row decoded layer by layer, float64, one passage at a time."""
    half = halves(gpt2, corpus, maps)
    running = run(gpt2, dtype=torch.float64)
    n = found.settings["mean_length"]
    taken = passages(gpt2, corpus, lines=half.scoring)
    own = {"mat": lambda x, l: x if l == 3 else x @ maps[l, 3].double(), "id": lambda x, l: x}
    left = {(p.map, p.rule, p.at): [] for p in found.points}
    same = {key: [] for key in left}
    wide = embspace.load(gpt2.folder, dtype="float64")
    for one in taken.passages:
        states = capture_all(running, [one], dtype=torch.float64)
        t = one.keep[0]
        final = replay.logits(wide, states.layers[3])[0, :300]
        for key in left:
            name, rule, at = key
            z = [replay.logits(wide, own[name](states.layers[l], l))[0, :300] for l in range(4)]
            gaps = [float(-torch.diff(x.softmax(0).topk(2).values)) for x in z]
            bar = 0.9 * at + 0.1 * math.exp(-4 * t / n)
            sure = [l for l in (1, 2) if gaps[l] > bar]
            where = at if rule == "fixed" else (sure[0] if sure else 3)
            left[key].append(where)
            same[key].append(int(z[where].argmax()) == int(final.argmax()))
    for point in found.points:
        key = (point.map, point.rule, point.at)
        assert point.blocks == pytest.approx(sum(left[key]) / len(left[key]))
        assert point.precision[1] == pytest.approx(sum(same[key]) / len(same[key]))
        assert point.saved == pytest.approx(1 - point.blocks / 3)
        assert list(point.histogram) == [left[key].count(l) for l in range(4)]
        assert sum(point.histogram) == found.settings["rows"] == len(half.scoring)
        low, high = point.precision_interval
        assert low <= point.precision[1] <= high


def test_the_last_exit_is_the_model(found):
    for name in ("mat", "id"):
        last = next(p for p in found.points if (p.map, p.rule, p.at) == (name, "fixed", 3))
        never = next(
            p for p in found.points if (p.map, p.rule, p.at) == (name, "confidence", NEVER)
        )
        for point in (last, never):
            assert point.precision == {1: 1.0, 5: 1.0, 10: 1.0} and point.saved == 0


def test_looking_costs_a_head_for_every_look_beside_the_answer(gpt2, found):
    d, d_ff, rows = 32, 52, 300
    cost = (rows * d + d * d) / (d * 3 * d + d * d + 2 * d * d_ff)
    assert found.settings["check_cost"] == pytest.approx(cost)
    for point in found.points:
        looks = [0, 0, 1, 2] if point.rule == "confidence" else [0, 0, 0, 0]
        extra = sum(n * k for n, k in zip(point.histogram, looks, strict=True))
        expected = point.saved - cost * extra / sum(point.histogram) / 3
        assert point.net == pytest.approx(expected)


def test_lambda_is_chosen_on_lines_that_are_not_scored(gpt2, maps, corpus):
    half = halves(gpt2, Text.read(corpus, seed=3), maps)
    groups = [set(half.calibration), set(half.scoring), set(range(60))]
    texts = [{corpus.lines[i] for i in group} for group in groups]
    assert not texts[0] & texts[1] and not texts[0] & texts[2] and not texts[1] & texts[2]
    assert len(half.calibration) == 30 and len(half.scoring) == 30


def test_other_scoring_text_changes_no_choice(gpt2, maps, corpus):
    half = halves(gpt2, corpus, maps)
    lines = list(corpus.lines)  # positions=1 draws each line's by itself
    for i in half.scoring:
        lines[i] = f"wheat {lines[i]}"
    one = exits(gpt2, maps, Text.read(corpus, positions=1), target=0.6)
    other = exits(gpt2, maps, Text.read(Text(tuple(lines), "changed"), positions=1), target=0.6)
    for a, b in zip(one.choices, other.choices, strict=True):
        assert (a.point.at, a.at_interval) == (b.point.at, b.at_interval)
        assert a.calibrated == pytest.approx(b.calibrated)
    assert [p.precision for p in one.points] != [p.precision for p in other.points]


def test_nearly_uniform_predictions_leave_nowhere(save_model, corpus):
    """Weights of size 0.002: no prediction is sure, whatever it would save."""
    import transformers

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=300, n_embd=32, n_layer=3, n_head=4, n_positions=64, initializer_range=0.002,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    folder = save_model(config)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)  # without random gains
    model = embspace.load(folder)
    found = exits(model, None, corpus)
    for point in found.points:
        if point.rule == "confidence" and point.at >= LEAST:
            assert point.histogram == (0, 0, 0, found.settings["rows"]) and point.saved == 0
    assert found.choice("mat").point.saved == 0 == found.choice("id").point.saved
    assert sum("nothing is saved" in note for note in found.notes) >= 2
    text = embspace.generate(model, None, "cats", exit_threshold=0.1, max_new_tokens=4, repeats=1)
    assert text.blocks == 3 and "nothing was saved" in text.verdict


def test_a_choice_is_what_generate_takes(gpt2, maps, corpus, found):
    text = embspace.generate(gpt2, maps, "her brother", exit=found, max_new_tokens=4, repeats=1)
    assert text.settings["at"] == found.choice("mat").point.at
    assert text.settings["mean_length"] == found.settings["mean_length"]
    assert text.settings["layers"] == [1, 2]


def test_masked_models_are_counted_too():
    bert = embspace.load("sample-bert-a")
    found = exits(
        bert,
        None,
        Text.read("sample:reference", held_out=range(3900, 4000)),
        rows=12,
        layers=[2, 4],
    )
    for point in found.points:
        if point.rule == "confidence":
            assert sum(point.histogram) == 12
            assert all(point.histogram[l] == 0 for l in (0, 1, 3, 5))


def test_the_table_has_a_row_a_point_with_plain_cells(found):
    rows = found.rows()
    assert len(rows) == len(found.points) + len(found.choices) + len(found.front)
    assert len({tuple(row) for row in rows}) == 1
    assert all(not isinstance(cell, list | tuple | dict) for row in rows for cell in row.values())
    assert found.to_json() and found.choice("id", "fixed").point.rule == "fixed"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": 0}, "target"),
        ({"target": 1.1}, "target"),
        ({"target": math.nan}, "target"),
        ({"lambdas": [math.nan]}, "λ must be a number"),
        ({"lambdas": ["x"]}, "λ must be a number"),
        ({"layers": [3]}, "layer 3"),
        ({"rows": 0}, "rows"),
    ],
)
def test_wrong_arguments_are_refused(gpt2, maps, corpus, given, words):
    with pytest.raises(EmbspaceError, match=words):
        exits(gpt2, maps, corpus, **given)


def test_one_line_is_too_few_to_calibrate_on_and_to_score(gpt2, maps, corpus):
    with pytest.raises(TextError, match="too few"):
        exits(gpt2, maps, Text.read(corpus, held_out=[70]))


def test_lines_that_were_all_fitted_are_refused(gpt2, maps, corpus):
    with pytest.raises(TextError, match="too few"):
        exits(gpt2, maps, Text.read(corpus, held_out=range(10)))


def test_one_forward_pass_serves_every_lambda(gpt2, maps, corpus, monkeypatch):
    calls = []
    whole = exits_module.read_text

    def counted(*args, **kwargs):
        calls.append(1)
        return whole(*args, **kwargs)

    monkeypatch.setattr(exits_module, "read_text", counted)
    exits(gpt2, maps, corpus, lambdas=[n / 50 for n in range(50)])
    assert len(calls) == 1


def test_halves_are_the_same_with_maps_fitted_here_or_given(gpt2, corpus):
    fitted_here = halves(gpt2, corpus, pairs="final")
    given = halves(gpt2, corpus, fitted_here.maps)
    assert given.calibration == fitted_here.calibration
    assert given.scoring == fitted_here.scoring


def test_blocks_at_the_target_are_a_mixture_of_the_ways_around_it():
    """By hand: 0.5 → 0.9 of the answers between 2 and 6 blocks; 0.8 stay at 5."""
    from embspace.shorten.planner import blocks_at

    blocks = torch.tensor([[2.0, 6.0, 8.0]], dtype=torch.float64)
    agreement = torch.tensor([[0.5, 0.9, 1.0]], dtype=torch.float64)
    assert blocks_at(blocks, agreement, 0.8).tolist() == pytest.approx([5.0])
    assert blocks_at(blocks, agreement, 0.9).tolist() == pytest.approx([6.0])
    assert blocks_at(blocks, agreement, 0.4).tolist() == pytest.approx([2.0])
    assert blocks_at(blocks, agreement, 1.0).tolist() == pytest.approx([8.0])


def test_lenses_are_compared_where_both_keep_the_target(gpt2, maps, corpus):
    found = exits(gpt2, maps, corpus, target=0.6)
    saved = {(c.point.map, c.point.rule): c.saved_at_target for c in found.choices}
    for gain in found.gains:
        assert gain.saved == pytest.approx(saved[gain.map, gain.rule] - saved["id", gain.rule])
    assert {(g.map, g.rule) for g in found.gains} == {("mat", "fixed"), ("mat", "confidence")}


def test_the_interval_of_what_is_saved_holds_the_choice():
    """It is wider than that of the same λ taken as given: answers are right where gaps are wide."""
    from embspace.shorten.early_exit import _Measured
    from embspace.shorten.outcomes import Outcomes

    draw = torch.Generator().manual_seed(0)

    def outcomes(first: int) -> Outcomes:
        gap = torch.rand(200, 4, generator=draw, dtype=torch.float64)
        rank = (torch.rand(200, 4, generator=draw, dtype=torch.float64) > gap).long()
        rank[:, -1] = 0
        return Outcomes(gap, rank, torch.arange(200) % 9, torch.arange(first, first + 200))

    lenses = ("mat", "id")
    sides = [{name: outcomes(first) for name in lenses} for first in (0, 200)]
    work = _Measured(*sides, None, 0.0, 0)
    chosen = work.choice("mat", "confidence", 0.8).point
    given = work.point(Way("mat", "confidence", chosen.at))
    assert chosen.saved == given.saved
    widths = [ends[1] - ends[0] for ends in (chosen.saved_interval, given.saved_interval)]
    assert widths[0] > 1.2 * widths[1]
