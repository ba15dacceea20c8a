"""Lenses compared on identical positions, against dense float64 computations."""

import pytest
import torch

import embspace
from embspace.errors import EmbspaceError, TextError
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.decoding import Head
from embspace.maps.fit import fit
from embspace.maps.lens_comparison import METRICS, compare_lenses
from embspace.text.passages import Encoder, passages
from embspace.text.text import Text, mark_of

LAYERS = [1, 3]


@pytest.fixture(scope="module")
def corpus():
    return Text.read("sample:reference", limit=500)


@pytest.fixture(scope="module")
def model():
    return embspace.load("sample-gpt2")


@pytest.fixture(scope="module")
def mat(model, corpus):
    return fit(model, Text.read(corpus, fit=range(300)))


@pytest.fixture(scope="module")
def found(model, corpus, mat):
    return compare_lenses(
        model, ["id", mat], Text.read(corpus, held_out=range(300, 360)), layers=LAYERS
    )


def test_all_measures_are_those_of_a_dense_computation(model, corpus, mat, found):
    taken = passages(model, corpus, lines=range(300, 360))
    states = capture_all(run(model), taken.passages)
    head, encoder = Head(model), Encoder(model)
    p = head(states.layers[4]).double().softmax(-1)
    following = {}
    for line in range(300, 360):
        following[line] = encoder.framed(encoder.encode([corpus.lines[line]])[0]).ids
    for n, layer in enumerate(LAYERS):
        for name, x in {
            "id": states.layers[layer],
            "mat": states.layers[layer] @ mat[layer, 4],
        }.items():
            q = head(x).double().softmax(-1)
            top = q.argmax(-1, keepdim=True)
            rank = (p > p.gather(1, top)).sum(1)
            kl = (p * (p.log() - q.log())).sum(-1).mean()
            ce = [
                -float(q[row, following[line][at + 1]].log())
                for row, (line, at) in enumerate(
                    zip(states.lines.tolist(), states.positions.tolist(), strict=True)
                )
                if at + 1 < len(following[line])
            ]
            means = found.layers[name][n].means
            assert means["kl"] == pytest.approx(float(kl), rel=1e-3)
            assert means["cross_entropy"] == pytest.approx(sum(ce) / len(ce), rel=1e-3)
            assert means["precision@5"] == pytest.approx(float((rank < 5).double().mean()))
            surprisal = -p.gather(1, top).log().mean()
            assert means["surprisal"] == pytest.approx(float(surprisal), rel=1e-3)


def test_intervals_hold_their_means_and_every_lens_has_every_measure(found):
    for name in ("id", "mat"):
        for score in (*found.layers[name], found.overall[name]):
            assert set(score.means) == set(METRICS)
            for metric, (low, high) in score.intervals.items():
                assert low <= score.means[metric] <= high


def test_cost_is_rows_and_bytes_of_the_maps(model, found):
    assert found.costs["id"].n_bytes == 0
    assert found.costs["mat"].rows == 300
    assert found.costs["mat"].n_bytes == 4 * 4 * model.d**2


def test_no_line_that_a_lens_was_fitted_on_is_scored(model, corpus, mat):
    some = compare_lenses(model, [mat], Text.read(corpus, held_out=range(290, 320)), layers=[2])
    marks = set(mat.about["marks"])
    fresh = sum(mark_of(corpus.lines[i]) not in marks for i in range(290, 320))
    assert some.settings["rows"] == fresh <= 20
    with pytest.raises(TextError, match="every line"):
        compare_lenses(model, [mat], Text.read(corpus, held_out=range(5)), layers=[2])


def test_a_masked_model_is_scored_at_the_token_under_the_mask():
    model = embspace.load("sample-bert-a")
    corpus = Text.read("sample:reference", limit=60)
    found = compare_lenses(model, "id", Text.read(corpus, held_out=range(30)), layers=[5])
    taken = passages(model, corpus, lines=range(30))
    states = capture_all(run(model), taken.passages)
    q = Head(model)(states.layers[5]).double().log_softmax(-1)
    encoder = Encoder(model)
    ids = [
        encoder.framed(encoder.encode([corpus.lines[p.line]])[0]).ids[p.keep[0]]
        for p in taken.passages
    ]
    true = -q.gather(1, torch.tensor(ids)[:, None]).mean()
    assert found.overall["id"].means["cross_entropy"] == pytest.approx(float(true), rel=1e-3)


def test_results_leave_as_table_json_and_csv(found):
    text = str(found)
    assert "mean over layers" in text and "P@1" in text
    assert found.to_json() and len(found.rows()) == 4
    assert found.to_dict()["lenses"]["mat"]["cost"]["rows"] == 300


def test_layers_that_do_not_exist_are_refused(model, corpus, mat):
    with pytest.raises(EmbspaceError):
        compare_lenses(model, [mat], Text.read(corpus, held_out=range(300, 310)), layers=[4])
