"""Schedules of blocks and jumps: against all schedules, and passes written out by hand."""

import itertools
import math

import numpy as np
import pytest
import torch

import embspace
from embspace.errors import EmbspaceError, MapsError
from embspace.live import rebuilt as replay
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.fit import fit
from embspace.maps.maps import Maps
from embspace.shorten.alternation import alternate
from embspace.shorten.beam_search import beam_search
from embspace.shorten.halves import halves
from embspace.shorten.jumps import Jumping
from embspace.shorten.schedules import (
    LEAST,
    Schedule,
    best_product,
    full,
    parsed,
    round_robin,
    round_robins,
    single_jump,
)
from embspace.text.passages import passages
from embspace.text.text import Text


def random_r2(n_layers, seed, low=-0.5):
    random = np.random.default_rng(seed)
    pairs = itertools.combinations(range(n_layers + 1), 2)
    return {pair: float(random.uniform(low, 1)) for pair in pairs}


def every_path(n_layers):
    """All lists of steps from 0 to L: a block, or a jump of any length that follows no jump."""

    def go(l, jumped, steps):
        if l == n_layers:
            yield steps
            return
        yield from go(l + 1, False, [*steps, ("block", l, l + 1)])
        for to in () if jumped else range(l + 1, n_layers + 1):
            yield from go(to, True, [*steps, ("jump", l, to)])

    return list(go(0, False, []))


@pytest.mark.parametrize("n_layers", [1, 2, 5, 7])
@pytest.mark.parametrize("low", [-0.5, 0.2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_best_product_is_the_best_of_all_schedules(n_layers, low, seed):
    r2 = random_r2(n_layers, seed, low)
    found = best_product(r2, n_layers)
    best = {}
    for path in every_path(n_layers):
        n = sum(kind == "block" for kind, *_ in path)
        jumps = [max(r2[a, b], 1e-6) for kind, a, b in path if kind == "jump"]
        best[n] = max(best.get(n, 0.0), math.prod(jumps))
    assert sorted(found) == list(range(n_layers + 1))
    for n, schedule in found.items():
        assert schedule.n_run == n
        assert schedule.product(r2) == pytest.approx(best[n], rel=1e-9)


def test_a_jump_without_positive_r2_is_taken_only_where_nothing_else_leads_on():
    r2 = {(0, 1): -3.0, (1, 2): 0.4, (0, 2): -0.5}
    found = best_product(r2, 2)
    assert str(found[1]) == "#." and str(found[2]) == "##"
    assert found[0].product(r2) == pytest.approx(LEAST)  # two negative ones make no positive one


@pytest.mark.parametrize("n_layers", [4, 6, 12, 30])
def test_round_robins_run_a_of_every_a_plus_b(n_layers):
    found = round_robins(n_layers)
    expected = [(a, b) for a in range(1, n_layers) for b in range(1, n_layers)
                if n_layers % (a + b) == 0]  # fmt: skip
    assert sorted(found) == sorted(expected)
    for (a, b), schedule in found.items():
        assert schedule.n_run == a * n_layers // (a + b)
        assert str(schedule) == ("#" * a + "." * b) * (n_layers // (a + b))
        assert all(to - l == b for l, to in schedule.jumps)


def test_jumps_are_the_runs_of_skipped_blocks():
    schedule = Schedule(frozenset({1, 2, 5}), 8)
    assert schedule.jumps == ((0, 1), (3, 5), (6, 8)) and str(schedule) == ".##..#.."
    assert full(3).jumps == () and single_jump(1, 3).jumps == ((1, 3),)


@pytest.mark.parametrize(
    "text", ["rr:0,2", "rr:1,2", "rr:2", "rr:a,b", "rr:-1,3", "r2:1", "all", "", "rr:1,1,1"]
)
def test_schedules_that_do_not_exist_are_refused(text):
    with pytest.raises(EmbspaceError, match=r"schedule|round robin"):
        parsed(text, 4)


def test_a_schedule_is_read_from_its_name():
    assert parsed(" rr:1,3", 4) == ("rr:1,3", round_robin(1, 3, 4))
    assert parsed("best", 4) == ("best", None)


@pytest.mark.parametrize("n_layers", [4, 6])
def test_a_wide_beam_finds_the_best_of_all_schedules(n_layers):
    random = np.random.default_rng(5)
    worth = {}

    def measure(schedules):
        for s in schedules:
            worth.setdefault(s, (float(random.uniform()), 0.0))
        return [worth[s] for s in schedules]

    found = beam_search(measure, random_r2(n_layers, 1), n_layers, beam=100)
    assert len(worth) == 2**n_layers
    for n, (schedule, value) in found.items():
        assert value == max(w for s, w in worth.items() if s.n_run == n) == worth[schedule]


def test_tries_limit_what_is_measured():
    calls = []

    def measure(schedules):
        calls.append(len(schedules))
        return [(0.5, 0.0) for _ in schedules]

    found = beam_search(measure, random_r2(6, 0), 6, beam=3, tries=2, least=2)
    assert max(calls) == 2 and sorted(found) == [2, 3, 4, 5, 6]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request, tiny_gpt2, tiny_llama):
    return embspace.load({"gpt2": tiny_gpt2, "llama": tiny_llama}[request.param])


@pytest.fixture(scope="module")
def maps(model, corpus):
    return fit(model, Text.read(corpus, fit=range(60), held_out=range(60, 80)), pairs="all")


def by_hand(model, maps, schedule, ids):
    """State L of every position: a pass whose blocks are called, or mapped over, one by one."""
    running = run(model, attention="eager")
    jumps = dict(schedule.jumps)
    L = model.n_layers
    x, l = None, 0
    while True:
        # a whole pass, in which block l gets x and what it puts out is kept
        kept = {}

        def before(module, args, kwargs, x=x, kept=kept):
            given = args[0] if args else kwargs["hidden_states"]
            mine = given if x is None else x
            kept["in"] = mine
            return ((mine, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": mine})

        def after(module, args, output, kept=kept):
            kept["out"] = output[0] if isinstance(output, tuple) else output

        block = running.block(min(l, L - 1))
        handles = [
            block.register_forward_pre_hook(before, with_kwargs=True),
            block.register_forward_hook(after),
        ]
        with torch.no_grad():
            running.base(input_ids=torch.tensor([ids]), use_cache=False)
        for handle in handles:
            handle.remove()
        if l in jumps:
            x, l = kept["in"] @ maps[l, jumps[l]], jumps[l]
        else:
            x, l = kept["out"], l + 1
        if l == L:
            return x[0]


def test_a_schedule_maps_all_positions_and_runs_its_blocks(model, maps, corpus):
    L = model.n_layers
    taken = passages(model, corpus, lines=range(80, 86))
    work = Jumping(run(model, attention="eager"), maps)
    for size in range(L + 1):
        for blocks in itertools.combinations(range(L), size):
            schedule = Schedule(frozenset(blocks), L)
            (found,) = work.measure([schedule], taken)
            ranks = dict(zip(found.lines.tolist(), found.rank.tolist(), strict=True))
            for one in taken.passages:
                end = len(model.vocabulary)
                mine = by_hand(model, maps, schedule, one.ids)[one.keep[0]]
                own = by_hand(model, maps, full(L), one.ids)[one.keep[0]]
                z, final = (replay.logits(model, x)[:end] for x in (mine, own))
                order = final.argsort(descending=True, stable=True).tolist()
                assert ranks[one.line] == order.index(int(z.argmax()))


def test_a_schedule_without_jumps_is_the_model(model, maps, corpus):
    found = alternate(model, maps, corpus, schedules="single", rows=15)
    whole = found.scores[0]
    assert (whole.name, whole.schedule, whole.n_run) == (
        "full", "#" * model.n_layers, model.n_layers,
    )  # fmt: skip
    assert whole.precision == {1: 1.0, 5: 1.0, 10: 1.0} and whole.product == 1.0


def test_the_single_jump_is_the_fixed_exit(model, maps, corpus):
    """Where no block follows, mapping all positions is mapping the scored one."""
    jumps = alternate(model, maps, corpus, schedules=["single"])
    left = embspace.exits(model, maps, corpus)
    for n in range(model.n_layers):
        fixed = next(p for p in left.points if (p.map, p.rule, p.at) == ("mat", "fixed", n))
        one = jumps.single(n)
        assert one is not None and one.precision == pytest.approx(fixed.precision)
        assert one.precision_interval == pytest.approx(fixed.precision_interval)


def test_the_search_is_scored_on_other_text_than_it_was_made_on(model, maps, corpus):
    half = halves(model, corpus, maps)
    found = alternate(model, maps, corpus, beam=8)
    best = [s for s in found.scores if s.name == "best"]
    assert [s.n_run for s in best] == list(range(model.n_layers))
    work = Jumping(run(model, attention="fast"), maps)
    taken = passages(model, corpus, lines=half.calibration)
    for size in range(model.n_layers):
        every = [
            Schedule(frozenset(blocks), model.n_layers)
            for blocks in itertools.combinations(range(model.n_layers), size)
        ]
        top = max(one.precision for one in work.measure(every, taken))
        assert best[size].calibrated == pytest.approx(top)
    assert found.settings["rows"] == len(half.scoring)
    assert not set(half.scoring) & set(half.calibration)


def test_given_maps_have_their_r2_of_calibration_rows_alone(model, maps, corpus):
    from sklearn.metrics import r2_score

    found = alternate(model, maps, corpus, schedules="single")
    half = halves(model, corpus, maps)
    taken = passages(model, corpus, lines=half.calibration)
    states = capture_all(run(model), taken.passages).layers
    L = model.n_layers
    for score in found.scores[1:]:
        x, A = states[score.n_run].double(), maps[score.n_run, L].double()
        r2 = r2_score(states[L].numpy(), (x @ A).numpy())
        assert score.product == pytest.approx(max(r2, LEAST), rel=1e-4)


def test_budgets_and_names_choose_what_is_shown(model, maps, corpus):
    found = alternate(model, maps, corpus, schedules=["r2", "rr:1,1"] if model.n_layers == 2
                      else ["r2", "rr:2,1"], budgets=[1], rows=8)  # fmt: skip
    names = [(s.name, s.n_run) for s in found.scores]
    rr = ("rr:1,1", 1) if model.n_layers == 2 else ("rr:2,1", 2)
    assert sorted(names) == sorted([("full", model.n_layers), ("r2", 1), rr])
    assert found.settings["rows"] == found.settings["rows_calibration"] == 8


def test_masked_models_alternate_too():
    bert = embspace.load("sample-bert-a")
    text = Text.read("sample:reference", held_out=range(3900, 4000))
    found = alternate(bert, None, text, schedules=["rr:1,1", "r2"], budgets=[3], rows=10)
    assert [s.n_run for s in found.scores] == [6, 3, 3]
    assert found.scores[0].precision[1] == 1


def test_jumps_need_maps_of_all_pairs(model, corpus):
    for short in ({"pairs": "final"}, {"pairs": "all", "keep": "final"}):
        maps = fit(model, Text.read(corpus, fit=range(60), held_out=range(60, 80)), **short)
        if model.n_layers > 1:
            with pytest.raises(MapsError, match="all pairs"):
                alternate(model, maps, corpus)


def test_given_maps_need_no_r2_of_their_own(model, maps, corpus):
    unscored = fit(model, Text.read(corpus, fit=range(60), held_out=0.0), pairs="all")
    assert unscored.pairs[0].r2 is None
    one, other = (
        alternate(model, given, Text.read(corpus, held_out=range(80, 120)), schedules=["r2"])
        for given in (unscored, maps)
    )
    assert one.scores == other.scores


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budgets": [99]}, "number of blocks 99"),
        ({"beam": 0}, "beam"),
        ({"tries": 0}, "tries"),
        ({"schedules": "worst"}, "unknown schedule"),
    ],
)
def test_wrong_arguments_are_refused(model, maps, corpus, given, words):
    with pytest.raises(EmbspaceError, match=words):
        alternate(model, maps, corpus, **given)


def test_the_table_has_a_row_a_schedule(model, maps, corpus):
    found = alternate(model, maps, corpus, rows=8)
    assert len(found.rows()) == len(found.scores) and len({tuple(r) for r in found.rows()}) == 1
    assert found.to_json()


def test_rows_whose_states_overflow_count_as_wrong_and_are_counted(
    model, maps, corpus, monkeypatch
):
    apply, L = Maps.apply, model.n_layers

    def growing(self, x, source, target=None):
        y = apply(self, x, source, target)
        if (source, target) == (1, L):  # of single jumps after one block, the first three rows
            y[:3] = torch.nan
        return y

    whole = alternate(model, maps, corpus, schedules=["single"], rows=8)
    monkeypatch.setattr(Maps, "apply", growing)
    found = alternate(model, maps, corpus, schedules=["single"], rows=8)
    for one, before in zip(found.scores, whole.scores, strict=True):
        if one.n_run != 1:
            assert one == before
            continue
        assert one.surprisal is None and one.to_dict()["surprisal"] is None
        for k, value in one.precision.items():
            assert before.precision[k] - 3 / 8 <= value <= min(before.precision[k], 5 / 8)
    assert any(f"(single {single_jump(1, L)}: 3 of 8)" in note for note in found.notes)
    assert "3 of 8" in " ".join(str(found).split())


def test_a_search_leaves_a_schedule_that_loses_its_rows(model, maps, corpus, monkeypatch):
    apply = Maps.apply

    def growing(self, x, source, target=None):
        huge = 1e38 if (source, target) == (0, 1) else 1.0
        return apply(self, x, source, target) * huge * huge

    monkeypatch.setattr(Maps, "apply", growing)
    found = alternate(model, maps, corpus, schedules="best", rows=8, beam=8)
    best = [s for s in found.scores if s.name == "best"]
    assert [s.n_run for s in best] == list(range(model.n_layers))
    assert not any(s.schedule.startswith(".#") for s in best)
    assert not any("grow beyond" in note for note in found.notes)
