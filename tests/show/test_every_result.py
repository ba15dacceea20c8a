"""Every kind of result has tables of its own, in a notebook and at any width of a terminal."""

import importlib
import inspect
import io
import pkgutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import embspace_data
import pytest
from rich.cells import cell_len
from rich.console import Console

import embspace
from embspace import evidence
from embspace.results import ListResult, Result, SeveralResults
from embspace.show import LOOKS
from embspace.show.report import TOPICS, report
from embspace.text.text import Text
from tests.show.browser import in_browser, needs_browser

WIDTHS = (40, 80, 200)
TEXT = Text(tuple(embspace_data.sentences("reference", 80, 3)), "made up")
OTHER = Text(tuple(embspace_data.sentences("story", 80, 3)), "made up too")
FEW = Text(TEXT.lines[:8], "made up")


def every_result() -> Iterator[type[Result]]:
    """All result classes of the package, found by importing all of it."""
    for info in pkgutil.walk_packages(embspace.__path__, "embspace."):
        if info.name.endswith("__main__"):
            continue
        for found in vars(importlib.import_module(info.name)).values():
            if (
                inspect.isclass(found)
                and issubclass(found, Result)
                and found not in (Result, ListResult, SeveralResults)
            ):
                yield found


def reproduction(model: Any, folder: Path) -> Result:
    from embspace.evidence.embedding_steps import Cast, embedding_steps
    from embspace.evidence.reproduction import reproduce

    pytest.importorskip("matplotlib")
    steps = embedding_steps(Cast(model, None), quick=True)
    how = {"models": {"model": model}, "looks": LOOKS, "quick": True}
    return reproduce("embedding", steps, folder / "out", **how)


def kept_maps(model: Any) -> Result:
    from embspace.maps.inventory import kept_maps
    from embspace.maps.remembered import fitted

    fitted(model, TEXT)
    return kept_maps()


def read_neuron(model: Any) -> Result:
    from embspace.read.neurons import read_neurons

    return read_neurons(model.ff[0], [1], 5)[0]


def exits(model: Any) -> Result:
    from embspace.shorten.early_exit import exits

    return exits(model, None, TEXT)


def alternation(model: Any) -> Result:
    from embspace.shorten.alternation import alternate

    return alternate(model, None, TEXT)


def generation(model: Any) -> Result:
    from embspace.maps.remembered import fitted
    from embspace.shorten.generation import generate

    return generate(model, fitted(model, TEXT)[0], "The cats", max_new_tokens=3)


def lens_comparison(model: Any) -> Result:
    from embspace.maps.lens_comparison import compare_lenses

    return compare_lenses(model, ["id", "mat"], TEXT)


def chosen(model: Any) -> Result:
    from embspace.evidence.reading_choice import candidates, choose_readings
    from embspace.evidence.relation_sets import RelationSet

    pairs = RelationSet("neighbours", tuple((f"#{i}", f"#{i + 1}") for i in range(260, 290)))
    few = candidates(model)[:2]
    return choose_readings(model, FEW, sets=[pairs], readings=few, keep=False)


def scored_relations(model: Any) -> Any:
    from embspace.evidence.relation_sets import RelationSet
    from embspace.evidence.relations import ScoringRelations

    pairs = RelationSet("neighbours", tuple((f"#{i}", f"#{i + 1}") for i in range(260, 290)))
    scoring = ScoringRelations(model, [pairs])
    assert list(scoring) == list(range(model.n_layers))
    return scoring


MANY = ("TokenReadings", "Lenses")  # several results, shown one below the other
# One builder a kind: (model, the same fine-tuned, labelled texts, an empty folder) -> result.
BUILT: dict[str, Callable[..., Result]] = {
    "CircuitPairs": lambda m, *_: m.heads[0, 0].qk.top_pairs(5),
    "VectorTokens": lambda m, *_: m.vectors(0, 1, "o")[3].top_tokens(9),
    "NeuronTokens": lambda m, *_: read_neuron(m),
    "RelatedPairs": lambda m, *_: m.related(0, k=30, overlap=0.05),
    "TokenReading": lambda m, *_: m.token("#280", k=5)[0],
    "TokenReadings": lambda m, *_: m.token("#280", k=5),
    "Certificate": lambda m, *_: embspace.certify(m),
    "Maps": lambda m, *_: embspace.fit(m, TEXT, pairs="all"),
    "KeptMaps": lambda m, *_: kept_maps(m),
    "Scores": lambda m, *_: embspace.score(m, None, TEXT),
    "Transfer": lambda m, *_: embspace.transfer(m, TEXT, OTHER),
    "SubmoduleScores": lambda m, *_: embspace.submodules(m, TEXT, rows=8),
    "Exits": lambda m, *_: exits(m),
    "Alternation": lambda m, *_: alternation(m),
    "Generation": lambda m, *_: generation(m),
    "Lens": lambda m, *_: embspace.lens(m, "The cats saw Paris", "id"),
    "Lenses": lambda m, *_: embspace.lens(m, ["The cats", "Paris and Rome"], "id"),
    "LensComparison": lambda m, *_: lens_comparison(m),
    "Alignment": lambda m, *_: embspace.align(m, m),
    "StateAlignment": lambda m, *_: state_alignment(m),
    "PairSimilarity": lambda m, *_: evidence.pairs(m, sample=20, k=30),
    "InverseCheck": lambda m, *_: evidence.inverse(m, n=9),
    "Concept": lambda m, *_: evidence.concept(m, ["#280", "#285"], draws=20),
    "StateOverlap": lambda m, *_: evidence.states(m, FEW),
    "ReadingChoice": lambda m, *_: chosen(m),
    "Relations": lambda m, *_: scored_relations(m).result(),
    "RelationsOfHead": lambda m, *_: scored_relations(m).of_head(),
    "Trust": lambda m, *_: evidence.trust(m, FEW),
    "FineTuning": lambda m, t, r, folder: embspace.finetune(
        m, r, folder / "classifier", blocks=1, epochs=1, batch=8
    ),
    "Stitching": lambda m, t, r, folder: embspace.stitch(m, t, r.test),
    "Difference": lambda m, t, r, folder: embspace.diff(m, t, turns=3),
    "Reproduction": lambda m, t, r, folder: reproduction(m, folder),
}


def state_alignment(model: Any) -> Result:
    from embspace.between.state_alignment import align_states

    return align_states(model, model, TEXT, words=60)


@pytest.fixture(scope="module")
def built(tiny_gpt2, tmp_path_factory) -> Callable[[str], Result]:
    """A result of each kind, made when it is first asked for."""
    made: dict[str, Result] = {}
    model = embspace.load(tiny_gpt2)
    reviews = labelled()

    def build(name: str) -> Result:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            tuned = None
            if name in ("Stitching", "Difference"):
                embspace.finetune(model, reviews, folder / "tuned", blocks=2, epochs=1, batch=8)
                tuned = embspace.load(folder / "tuned")
            made[name] = BUILT[name](model, tuned, reviews, folder)
        return made[name]

    return build


def labelled() -> Any:
    from embspace.text.labelled import Labelled, Split

    def side(name: str, n: int) -> Labelled:
        texts = tuple(f"{'good' if i % 2 else 'bad'} film {name} {i}" for i in range(n))
        return Labelled(texts, tuple(i % 2 for i in range(n)), ("negative", "positive"))

    return Split(side("a", 16), side("b", 6), side("c", 12), "made up")


class Cells(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.n_cells = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.n_cells += tag == "td"
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_no_kind_of_result_is_forgotten():
    assert {found.__name__ for found in every_result()} == set(BUILT)


@pytest.mark.parametrize("name", BUILT)
def test_it_has_tables_of_its_own(built, name):
    result = built(name)
    assert type(result).__name__ == name
    if name in MANY:
        return
    found = report(result)
    assert report.dispatch(type(result)) is not report.dispatch(object), f"{name} has no report"
    assert found.title != name
    assert sum(name in results for results in TOPICS.values()) == 1


@pytest.mark.parametrize("name", BUILT)
def test_a_notebook_shows_whole_tables(built, name):
    found = Cells(built(name)._repr_html_())
    assert found.open == [] and found.n_cells > 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", BUILT)
def test_no_line_is_wider_than_the_terminal(built, name, width):
    screen = Console(file=io.StringIO(), width=width)
    screen.print(built(name))
    lines = screen.file.getvalue().split("\n")  # type: ignore[attr-defined]
    assert max(cell_len(line.rstrip()) for line in lines) <= width
    assert sum(bool(line.strip()) for line in lines) > 2


@pytest.mark.parametrize("name", BUILT)
def test_json_and_csv_hold_the_same_rows(built, name):
    result = built(name)
    assert result.to_json().startswith("{")
    header = result.to_csv().split("\n")[0]
    assert not result.rows() or header.split(",")[0] == next(iter(result.rows()[0]))


@needs_browser
def test_no_fragment_is_wider_than_a_phone(built, tmp_path):
    """All kinds in one frame: tables scroll in a box of their own."""
    fragments = {name: built(name)._repr_html_() for name in BUILT}
    page = "".join(f'<div id="{name}">{html}</div>' for name, html in fragments.items())
    widths = in_browser(
        f"<!DOCTYPE html><body>{page}</body>",
        "return Object.fromEntries([...page.document.body.children].map("
        "(part) => [part.id, part.scrollWidth]));",
        tmp_path,
        width=390,
    )
    assert set(widths) == set(BUILT)
    assert {name: width for name, width in widths.items() if width > 390} == {}
