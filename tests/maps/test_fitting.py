"""A whole fit against least squares on states of the live model; stopped, resumed, shared out."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from transformers import AutoModelForCausalLM

from embspace import load
from embspace.errors import MapsError
from embspace.live.recorder import PARTS
from embspace.maps import fit as fitting
from embspace.maps.fit import Fitting, fit, plan_of
from embspace.maps.maps import Maps
from embspace.text.splits import split
from embspace.text.text import Text

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return load(tiny_gpt2)


@pytest.fixture(scope="module")
def live_states(tiny_gpt2, model, corpus):
    """States 0 … 3 of every token of every line by hooks on the live model, a line at a time."""
    live = AutoModelForCausalLM.from_pretrained(tiny_gpt2, attn_implementation="eager")
    seen: list[torch.Tensor] = []
    live.transformer.h[0].register_forward_pre_hook(lambda m, args: seen.append(args[0][0]))
    for block in live.transformer.h:
        block.register_forward_hook(
            lambda m, a, out: seen.append((out[0] if isinstance(out, tuple) else out)[0])
        )
    found = []
    for line in corpus.lines:
        seen.clear()
        with torch.no_grad():
            live(torch.tensor([model.vocabulary.tokenizer(line)["input_ids"]]))
        found.append(torch.stack(seen).double().numpy())
    return found


def rows_of(live_states, lines, positions="all") -> np.ndarray:
    """layers × rows × d of some lines: all positions, or one of each."""
    if positions == "all":
        return np.concatenate([live_states[i] for i in lines], 1)
    return np.stack([live_states[i][:, positions[i]] for i in lines], 1)


def off(ours, true) -> float:
    return float(np.abs(np.asarray(ours) - true).max() / np.abs(true).max())


@pytest.mark.parametrize("kind", ["mat", "affine"])
def test_maps_and_scores_are_those_of_linear_regression_on_the_live_states(
    model, corpus, live_states, kind
):
    fitted, held = range(80), range(80, 120)
    maps = fit(
        model, Text.read(corpus, fit=fitted, held_out=held, positions="all"), pairs="all", kind=kind
    )
    x, test = rows_of(live_states, fitted), rows_of(live_states, held)
    assert maps.about["rows"] == x.shape[1]
    assert maps.about["rows_scored"] == test.shape[1]
    for pair in maps.pairs:
        a, b = int(pair.source), int(pair.target)
        theirs = LinearRegression(fit_intercept=kind == "affine").fit(x[a], x[b])
        wanted = theirs.predict(test[a])
        ours = maps.apply(torch.from_numpy(test[a]), a, b)
        assert off(ours, wanted) < 1e-3  # the states themselves are float32, read twice
        assert pair.r2 == pytest.approx(r2_score(test[b], wanted), abs=1e-4)
        assert pair.r2_id == pytest.approx(r2_score(test[b], test[a]), rel=1e-4)
        assert pair.rank == 32


def test_one_random_position_a_line_is_fitted_where_it_should_be(model, corpus, live_states):
    """Positions drawn over all lines in order, whatever is fitted."""
    rng = random.Random(5)
    at = [rng.randrange(states.shape[1]) for states in live_states]
    fitted = list(range(10, 110))
    maps = fit(model, Text.read(corpus, fit=fitted, held_out=[0, 1, 2], seed=5))
    x = rows_of(live_states, fitted, at)
    A = np.linalg.lstsq(x[1], x[3], rcond=None)[0]
    assert off(x[1] @ maps[1, 3].double().numpy(), x[1] @ A) < 1e-3
    assert [(p.source, p.target) for p in maps.pairs] == [("0", "3"), ("1", "3"), ("2", "3")]


def test_blocks_and_submodules_of_one_pass_are_those_of_two(model, corpus):
    both, blocks, submodules = (
        fit(model, Text.read(corpus, fit=range(80), held_out=range(80, 120)), parts=parts)
        for parts in ("both", "blocks", "submodules")
    )
    assert both.tensors.keys() == blocks.tensors.keys() | submodules.tensors.keys()
    for name, A in {**blocks.tensors, **submodules.tensors}.items():
        assert torch.equal(both.tensors[name], A)
    assert set(both.pairs) == {*blocks.pairs, *submodules.pairs}
    assert both.about["rows_outlying"] == blocks.about["rows_outlying"]


def test_submodules_are_fitted_from_their_inputs_to_their_outputs(model, corpus):
    maps = fit(model, Text.read(corpus, positions="all"), parts="submodules")
    assert len(maps.pairs) == 3 * len(PARTS)
    ff = next(p for p in maps.pairs if p.source == "1.ff.in")
    assert ff.target == "1.ff.out"
    assert maps["1.ff.in", "1.ff.out"].shape == (32, 32)
    assert ff.r2 is not None


def test_products_in_float32_score_alike(model, corpus):
    exact = fit(model, Text.read(corpus, positions="all"), pairs="all")
    fast = fit(model, Text.read(corpus, positions="all"), pairs="all", products="float32")
    for one, other in zip(exact.pairs, fast.pairs, strict=True):
        assert other.r2 == pytest.approx(one.r2, abs=1e-4)


def test_batches_of_any_size_give_the_same_maps(model, corpus):
    one = fit(model, Text.read(corpus, positions="all"))
    other = fit(model.with_run(batch_tokens=20), Text.read(corpus, positions="all"))
    for name, A in one.tensors.items():
        assert off(other.tensors[name], A.numpy()) < 1e-2
    for a, b in zip(one.pairs, other.pairs, strict=True):
        assert b.r2 == pytest.approx(a.r2, abs=1e-4)


def test_no_text_is_on_both_sides_whatever_its_positions(model):
    """Thirty texts with all their tokens: rows of one text go to one side together."""
    corpus = Text(tuple(f"text {n} " + "cats and dogs " * 4 for n in range(30)), "x")
    text = Text.read(corpus, positions="all", max_tokens=40, seed=3)
    work = Fitting(model, text, split(text), plan_of(model, "final", "blocks"), "mat", "float64")
    sides = {name: {p.line for p in each.passages} for name, each in work.sets.items()}
    assert not sides["fit"] & sides["score"]
    assert len(sides["fit"] | sides["score"]) == 30
    assert work.sets["score"].n_rows > 8 * 10


def test_ridge_is_chosen_on_lines_of_their_own(model, corpus):
    text = Text.read(corpus, positions="all")
    work = Fitting(model, text, split(text), plan_of(model, "final", "blocks"), "ridge", "float64")
    sides = [{p.line for p in each.passages} for each in work.sets.values()]
    assert len(sides) == 3
    assert sum(len(side) for side in sides) == len(set().union(*sides)) == 120
    maps = fit(model, Text.read(corpus, positions=1), kind="ridge")
    assert maps.about["rows"] == 90  # the lines of the choice are fitted in the end
    assert set(maps.about["ridge"]) == {"0", "1", "2"}
    given = fit(model, Text.read(corpus, positions=1), kind="ridge", ridge=0.5)
    assert set(given.about["ridge"].values()) == {0.5}


def test_too_few_rows_are_said_so_and_the_rank_is_theirs(model, corpus):
    maps = fit(model, corpus, rows=12)
    assert maps.about["rows"] == 12
    assert {pair.rank for pair in maps.pairs} <= set(range(13))
    assert any("do not determine" in note for note in maps.about["notes"])


def test_converged_fits_stop_early_and_record_why(model, monkeypatch):
    monkeypatch.setattr(fitting, "CONVERGED", 0.01)
    lines = tuple(f"{n} cats and {n * 7 % 100} dogs in Paris" for n in range(700))
    seen = []
    corpus = Text(lines, "x")
    maps = fit(
        model.with_run(batch_tokens=256),
        Text.read(corpus, positions="all"),
        until_converged=True,
        on_check=seen.append,
    )
    whole = fit(model.with_run(batch_tokens=256), Text.read(corpus, positions="all"))
    assert maps.about["rows"] < whole.about["rows"]
    assert [c.rows for c in seen] == [c["rows"] for c in maps.about["checks"]]
    assert all(b.rows >= a.rows * 1.4 for a, b in pairwise(seen))
    half = [c for c in seen[:-1] if c.rows * 2 <= seen[-1].rows * 1.001]
    assert seen[-1].r2 - half[-1].r2 < fitting.CONVERGED


def test_nothing_given_is_held_out_scores_nothing(model, corpus):
    maps = fit(model, Text.read(corpus, held_out=0.0))
    assert all(pair.r2 is None for pair in maps.pairs)
    assert maps.about["rows_scored"] == 0


# stopped and resumed ---------------------------------------------------------------------
SETTINGS = {"pairs": "all", "positions": "all", "batch_tokens": 200}


class StopError(Exception):
    """Of the test."""


def equal(a: Maps, b: Maps) -> bool:
    return a.pairs == b.pairs and all(torch.equal(b.tensors[n], t) for n, t in a.tensors.items())


@pytest.mark.parametrize("after", [1, 4, 9])
@pytest.mark.parametrize("kind", ["mat", "ridge"])
def test_a_fit_that_was_stopped_goes_on_to_the_same_bits(
    model, corpus, tmp_path, monkeypatch, after, kind, fit_as
):
    whole = fit_as(model, corpus, SETTINGS, kind=kind)
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)  # after every batch
    state, seen = tmp_path / "state", []

    def stop(name, n, n_all):
        seen.append(n)
        if len(seen) == after + 1:
            raise StopError

    with pytest.raises(StopError):
        fit_as(model, corpus, SETTINGS, kind=kind, state=state, progress=stop)
    read_again = []
    rest = fit_as(
        model,
        corpus,
        SETTINGS,
        kind=kind,
        state=state,
        resume=True,
        progress=lambda name, n, n_all: read_again.append(name),
    )
    assert equal(rest, whole)
    assert rest.about == whole.about
    calls = []
    fit_as(model, corpus, SETTINGS, kind=kind, progress=lambda *a: calls.append(a))
    assert len(read_again) == len(calls) - after


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"batch_tokens": 100},
        {"run_dtype": "float64"},
        {"products": "float32"},
        {"pairs": "final"},
        {"positions": 2},
        {"skip_first": 1},
        {"max_tokens": 5},
        {"kind": "ridge"},
    ],
)
def test_a_state_of_another_fit_is_refused(model, corpus, tmp_path, monkeypatch, changed, fit_as):
    state = tmp_path / "state"
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)
    fit_as(model, corpus, SETTINGS, state=state)
    with pytest.raises(MapsError, match="another fit"):
        fit_as(model, corpus, SETTINGS | changed, state=state, resume=True)


def test_a_state_of_other_settings_of_the_config_is_refused(
    model, tiny_gpt2, corpus, tmp_path, monkeypatch, fit_as
):
    state, folder = tmp_path / "state", Path(shutil.copytree(tiny_gpt2, tmp_path / "other"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_epsilon": 0.5}))
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)
    fit_as(model, corpus, SETTINGS, state=state)
    with pytest.raises(MapsError, match="another fit"):
        fit_as(load(folder), corpus, SETTINGS, state=state, resume=True)


def test_a_state_of_other_text_or_of_nothing_is_refused(
    model, corpus, tmp_path, monkeypatch, fit_as
):
    state = tmp_path / "state"
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)
    fit_as(model, corpus, SETTINGS, state=state)
    other = Text((*corpus.lines[:-1], "another last line"), "x")
    with pytest.raises(MapsError, match="another fit"):
        fit_as(model, other, SETTINGS, state=state, resume=True)
    with pytest.raises(MapsError, match="no state"):
        fit_as(model, corpus, SETTINGS, state=tmp_path / "none", resume=True)


FIT = """
import json, sys
from pathlib import Path
from embspace import load
from embspace.maps import fit as fitting
from embspace.maps.distributed import process_group
from embspace.text.text import Text

folder, lines, out, settings = sys.argv[1:5]
fitting.SAVE_EVERY_S = -1.0
settings = json.loads(settings)
text = Text(
    tuple(json.loads(Path(lines).read_text())), "lines", positions=settings.pop("positions")
)
model = load(folder).with_run(batch_tokens=settings.pop("batch_tokens"))
with process_group() as group:
    maps = fitting.fit(
        model, text, group=group, state=out + ".state", **settings,
        progress=lambda name, n, n_all: print(name, n, flush=True),
    )
    if group.first:
        maps.save(out)
"""


def started(
    tiny_gpt2, corpus, tmp_path, settings=None, **environment: str
) -> subprocess.Popen[str]:
    """A fit in a process of its own."""
    lines = tmp_path / "lines.json"
    lines.write_text(json.dumps(corpus.lines))
    command = [sys.executable, "-c", FIT, str(tiny_gpt2), str(lines), str(tmp_path / "maps")]
    return subprocess.Popen(
        [*command, json.dumps(SETTINGS | (settings or {}))],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_fit_that_was_killed_goes_on_to_the_same_bits(model, tiny_gpt2, corpus, tmp_path, fit_as):
    child = started(tiny_gpt2, corpus, tmp_path)
    assert child.stdout is not None
    for _ in range(4):  # batches read; each but the last is saved
        child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert not (tmp_path / "maps").exists()
    rest = fit_as(model, corpus, SETTINGS, state=tmp_path / "maps.state", resume=True)
    assert equal(rest, fit_as(model, corpus, SETTINGS))


@pytest.mark.parametrize("products", ["float64", "float32"])
def test_two_processes_fit_what_one_does(model, tiny_gpt2, corpus, tmp_path, products, fit_as):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    children = [
        started(
            tiny_gpt2,
            corpus,
            tmp_path,
            {"products": products},
            RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            OMP_NUM_THREADS="1",
        )
        for rank in (0, 1)
    ]
    for child in children:
        _, said = child.communicate(timeout=300)
        assert child.returncode == 0, said
    two, one_alone = Maps.load(tmp_path / "maps", model), fit_as(model, corpus, SETTINGS)
    assert two.about["rows"] == one_alone.about["rows"]
    assert two.about["rows_outlying"] == one_alone.about["rows_outlying"]
    tolerance = 1e-10 if products == "float64" else 1e-4
    for a, b in zip(two.pairs, one_alone.pairs, strict=True):
        assert a.r2 == pytest.approx(b.r2, rel=tolerance, abs=tolerance)
        assert a.r2_id == pytest.approx(b.r2_id, rel=tolerance)
        assert a.rank == b.rank
    for name, A in one_alone.tensors.items():  # kept in float32
        assert off(two.tensors[name], A.numpy()) < (1e-6 if products == "float64" else 1e-3)


def test_the_held_out_share_follows_the_lines_that_are_fitted(model, corpus):
    whole, few = fit(model, corpus), fit(model, corpus, rows=30)
    assert (whole.about["rows"], whole.about["rows_scored"]) == (90, 30)
    assert (few.about["rows"], few.about["rows_scored"]) == (30, 10)
    assert fit(model, Text.read(corpus, held_out=0.0), rows=30).about["rows_scored"] == 0
    assert fit(model, Text.read(corpus, held_out=range(50)), rows=30).about["rows_scored"] == 50
