"""What a fit refuses, before the model is run where it can be told by then."""

import pytest

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
