"""Refined maps are better at what they are trained for, on text that no step has seen."""

import pytest
import torch

import embspace
from embspace.errors import EmbspaceError, MapsError, ModelError, TextError
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.decoding import Head
from embspace.maps.fit import fit
from embspace.maps.maps import Maps
from embspace.maps.named import named_maps
from embspace.maps.refine import refine, require_refinable
from embspace.text.passages import passages
from embspace.text.text import Text


@pytest.fixture(scope="module")
def model():
    return embspace.load("sample-gpt2")


@pytest.fixture(scope="module")
def corpus():
    return Text.read("sample:reference", limit=900)


@pytest.fixture(scope="module")
def mat(model, corpus):
    return fit(model, Text.read(corpus, fit=range(600)))


@pytest.fixture(scope="module")
def refined(model, corpus, mat):
    return refine(model, mat, corpus, layers=[1, 2], epochs=2)


def kl(model, maps, corpus, layer):
    """KL(p_model ‖ p_lens) on lines 600 …, densely in float64."""
    taken = passages(model, corpus, lines=range(600, 900))
    states = capture_all(run(model), taken.passages, layers=[layer, model.n_layers])
    head = Head(model)
    final, x = states.layers[model.n_layers], states.layers[layer]
    log_p = head(final).double().log_softmax(-1)
    log_q = head(maps.apply(x, layer)).double().log_softmax(-1)
    return float((log_p.exp() * (log_p - log_q)).sum(-1).mean())


def test_kl_on_held_out_text_falls_below_that_of_mat(model, corpus, mat, refined):
    for layer in (1, 2):
        assert kl(model, refined, corpus, layer) < kl(model, mat, corpus, layer)
        before, after = refined.about["kl"][str(layer)]
        assert after < before


def test_a_refined_map_keeps_what_it_was_made_from(model, mat, refined, tmp_path):
    assert refined.kind == "refined" and refined.about["refined_from"] == "mat"
    assert (1, 4) in refined and (0, 4) not in refined and len(refined.pairs) == 2
    again = Maps.load(refined.save(tmp_path / "r.maps"), model)
    x = torch.randn(3, model.d)
    assert torch.allclose(again.apply(x, 1), refined.apply(x, 1), atol=1e-4)
    assert embspace.lens(model, "The port is", again, layers=[1, 4]).grids["refined"].rows


def test_the_same_seed_gives_the_same_maps(model, corpus, mat):
    one, two = (
        refine(model, mat, Text.read(corpus, seed=3), layers=[2], epochs=1) for _ in range(2)
    )
    assert torch.equal(one[2, 4], two[2, 4]) and one.about == two.about


def test_slices_change_nothing(model, corpus, mat, monkeypatch):
    from embspace.maps import refine as room

    whole = room.refine(model, mat, corpus, layers=[2], epochs=1)
    monkeypatch.setattr(room, "SLICE", 20 * len(model.vocabulary))
    sliced = room.refine(model, mat, corpus, layers=[2], epochs=1)
    assert torch.allclose(whole[2, 4], sliced[2, 4], atol=1e-3)


def test_a_rate_that_only_harms_leaves_the_start(model, corpus, mat):
    found = refine(model, mat, corpus, layers=[3], epochs=1, rate=0.9)
    assert torch.allclose(found[3, 4], mat[3, 4], atol=1e-6)
    assert found.about["kl"]["3"][0] == found.about["kl"]["3"][1]


def test_other_text_than_that_of_the_fit_is_refused(model, corpus, mat):
    with pytest.raises(TextError, match="same text"):
        refine(model, mat, "sample:story")
    with pytest.raises(MapsError):
        refine(model, mat, corpus, layers=[9])
    with pytest.raises(EmbspaceError, match="rate"):
        refine(model, mat, corpus, rate=0.0)


def test_maps_of_other_weights_are_refused(mat, corpus):
    with pytest.raises(MapsError, match="fit them again"):
        refine(embspace.load("sample-gpt2-b"), mat, corpus)


def test_what_cannot_be_refined_is_told_before_the_fit(model, monkeypatch):
    require_refinable(model, 600)
    monkeypatch.setattr("embspace.maps.refine.MOST_MARKS", 599)
    with pytest.raises(TextError, match="599 at most"):
        require_refinable(model, 600)
    monkeypatch.setattr(type(model), "has_head", False)
    with pytest.raises(ModelError, match="no prediction head"):
        require_refinable(model, 5)


@pytest.mark.parametrize(
    ("layers", "inside", "refined_ones"),
    [([1, 4], False, [1]), ([0], True, [0, 1]), ([4], False, [3]), (None, False, None)],
)
def test_a_lens_refines_only_the_layers_that_it_shows(
    model, corpus, monkeypatch, tmp_path, layers, inside, refined_ones
):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path))
    asked = []

    def recorded(model, maps, corpus, *, layers=None, progress=None):
        asked.append(layers)
        return maps

    monkeypatch.setattr("embspace.maps.named.refine", recorded)
    embspace.lens(model, "The port", "refined", layers=layers, inside=inside, text=corpus)
    assert asked == [refined_ones]


def test_refined_maps_of_some_layers_are_remembered_apart_and_those_of_all_serve_each(
    model, corpus, monkeypatch, tmp_path
):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path))
    asked = []

    def recorded(model, maps, corpus, *, layers=None, progress=None):
        asked.append(layers)
        return maps

    monkeypatch.setattr("embspace.maps.named.refine", recorded)
    for layers in ([1], [2], [1], [2, 1], None, [3]):
        named_maps(model, "refined", corpus, layers=layers)
    assert asked == [[1], [2], [2, 1], None]
    many = list(range(200)) * 2  # a file's name stays short
    named_maps(model, "refined", Text(corpus.lines[:60], "few"), layers=many)
    assert asked[-1] == many and max(len(path.name) for path in tmp_path.rglob("*")) < 100
