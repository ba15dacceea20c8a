"""No public function drops a keyword that it does not know."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import embspace_data
import pytest

import embspace
from embspace import evidence
from embspace.maps.fit import fit
from embspace.text.text import Text

UNKNOWN = "skip_frist"
TEXT = embspace_data.sentences("reference", 12, 3)
# What takes keywords to hand them on, with what a call needs besides: it must refuse them too.
CALLS: dict[str, Callable[..., Any]] = {
    "load": lambda model, maps, more: embspace.load(model.name, **more),
    "ReadableModel.token": lambda model, maps, more: model.token("#280", **more),
    "ReadableModel.related": lambda model, maps, more: model.related(0, **more),
    "ReadableModel.reading": lambda model, maps, more: model.reading(0, **more),
    "ReadableModel.survey": lambda model, maps, more: model.survey(**more),
    "ReadableModel.with_run": lambda model, maps, more: model.with_run(**more),
    "Text.read": lambda model, maps, more: embspace.Text.read(TEXT, **more),
}
GIVEN = {
    "lens": lambda model, maps, more: embspace.lens(model, "The cats", maps, **more),
    "row": lambda model, maps, more: model.heads[0, 0].qk.row("#280", **more),
    "column": lambda model, maps, more: model.heads[0, 0].qk.column("#280", **more),
    "circuit": lambda model, maps, more: model.heads[0, 0].circuit("qk", **more),
    "score": lambda model, maps, more: embspace.score(model, maps, TEXT, **more),
    "exits": lambda model, maps, more: embspace.exits(model, maps, TEXT, **more),
    "alternate": lambda model, maps, more: embspace.alternate(model, maps, TEXT, **more),
}


def public() -> Iterator[tuple[str, Any]]:
    """Functions, classes and public methods by name."""
    found = {name: getattr(embspace, name) for name in embspace.__all__}
    found |= {name: getattr(evidence, name) for name in evidence.__all__}
    for name, one in found.items():
        if inspect.isclass(one) and issubclass(one, Exception):
            continue
        if callable(one):
            yield name, one
        if inspect.isclass(one):
            methods = inspect.getmembers(one, is_method)
            yield from ((f"{name}.{n}", m) for n, m in methods if not n.startswith("_"))


def is_method(one: Any) -> bool:
    return inspect.isfunction(one) or inspect.ismethod(one)


def takes_any(function: Any) -> bool:
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    return inspect.Parameter.VAR_KEYWORD in kinds


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


@pytest.fixture(scope="module")
def maps(model):
    return fit(model, Text.read(TEXT, held_out=0.25), pairs="all")


@pytest.mark.parametrize(("name", "function"), list(public()))
def test_an_unknown_keyword_is_refused_by_name(name, function, model, maps):
    if takes_any(function):
        assert name in CALLS, "hands its keywords on: say how it is called"
        with pytest.raises(TypeError, match=UNKNOWN):
            CALLS[name](model, maps, {UNKNOWN: 4})
    else:
        with pytest.raises(TypeError):
            inspect.signature(function).bind_partial(**{UNKNOWN: 4})


@pytest.mark.parametrize("name", list(GIVEN))
def test_it_is_refused_where_nothing_would_use_it(name, model, maps):
    with pytest.raises(TypeError, match=UNKNOWN):
        GIVEN[name](model, maps, {UNKNOWN: 4})


@pytest.mark.parametrize("function", ["score", "exits", "alternate"])
def test_the_kind_that_is_asked_for_is_fitted_and_clashes_with_given_maps(function, model, maps):
    call = getattr(embspace, function)
    found = call(model, None, TEXT, kind="affine")
    assert found.settings["kind"] == "affine"
    with pytest.raises(embspace.EmbspaceError, match="kind 'affine' is of maps that are fitted"):
        call(model, maps, TEXT, kind="affine")


def test_first_tokens_are_left_out_wherever_that_is_asked_for(model, maps):
    """`skip_first` reaches the positions of every measurement."""
    for found in (
        embspace.score(model, maps, Text.read(TEXT, skip_first=2)),
        embspace.exits(model, maps, Text.read(TEXT, skip_first=2)),
        embspace.alternate(model, maps, Text.read(TEXT, skip_first=2), schedules="single"),
        embspace.submodules(model, Text.read(TEXT, skip_first=2), rows=3),
        embspace.transfer(
            model,
            Text.read(TEXT, skip_first=2),
            Text.read(embspace_data.sentences("story", 12, 3), skip_first=2),
        ),
    ):
        assert found.settings["skip_first"] == 2
