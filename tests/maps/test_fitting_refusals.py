"""What a fit refuses, before the model is run where it can be told by then."""

import pytest

import embspace
from embspace import load
from embspace.errors import EmbspaceError, ResourceError, TextError
from embspace.maps import fit as fitting
from embspace.maps.distributed import Group
from embspace.maps.fit import fit


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return load(tiny_gpt2)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "best"},
        {"products": "float16"},
        {"run_dtype": "int8"},
        {"ridge": -1.0, "kind": "ridge"},
        {"ridge": float("nan"), "kind": "ridge"},
        {"pairs": [(0, 7)]},
        {"parts": "heads"},
        {"rows": 0},
        {"fit": []},
        {"held_out": 1.5},
        {"seed": -1},
        {"max_tokens": 1000},
        {"resume": True},
    ],
)
def test_options_that_make_no_sense_are_refused(model, corpus, options, fit_as):
    with pytest.raises(EmbspaceError) as error:
        fit_as(model, corpus, options)
    assert "\n" not in str(error.value)


def test_sums_that_would_not_fit_are_refused_before_the_run(model, corpus, monkeypatch):
    monkeypatch.setattr(fitting, "free_memory", lambda device: 1000)
    monkeypatch.setattr(fitting, "start_model", lambda *a, **k: pytest.fail("the model was run"))
    with pytest.raises(ResourceError, match="pairs"):
        fit(model, corpus)


def test_convergence_is_not_judged_by_one_of_several_processes(model, corpus):
    with pytest.raises(EmbspaceError, match="one process"):
        fit(model, corpus, group=Group(0, 2), until_converged=True)


def test_a_line_that_is_not_text_is_refused(model):
    with pytest.raises(TextError):
        fit(model, ["a", 5])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["score", "submodules", "transfer", "exits", "compare_lenses"])
def test_a_layer_that_is_not_there_is_refused_before_anything_is_fitted(
    model, corpus, monkeypatch, name
):
    from embspace.live import running
    from embspace.maps.lens_comparison import compare_lenses

    monkeypatch.setattr(running, "run", lambda *a, **k: pytest.fail("the model was run"))
    calls = {
        "score": lambda: embspace.score(model, None, corpus, layers=[9]),
        "submodules": lambda: embspace.submodules(model, corpus, layers=[9]),
        "transfer": lambda: embspace.transfer(model, corpus, ["a b", "c d"], layers=[9]),
        "exits": lambda: embspace.exits(model, None, corpus, layers=[9]),
        "compare_lenses": lambda: compare_lenses(model, ["id", "mat"], corpus, layers=[9]),
    }
    with pytest.raises(EmbspaceError, match="layer 9 does not exist"):
        calls[name]()
