"""HTML fragments show every token as text, whatever it looks like, and fetch nothing."""

from html.parser import HTMLParser

import pytest

import embspace
from embspace.show import as_html

ALLOWED = {"div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi"}


class Page(HTMLParser):
    """Tags, attributes and the text of each table cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def model(awkward):
    return embspace.load(awkward)


@pytest.fixture(scope="module")
def page(model):
    return Page(as_html(model.vectors(0, 1, "o")[3].top_tokens(39)))


def test_tokens_are_text_and_nothing_else(page, model):
    assert page.tags <= ALLOWED and page.attributes <= {"class"}
    assert page.open == []
    assert set(model.vocabulary.labels) <= set(page.cells)


def test_nothing_is_fetched(model):
    html = as_html(model.heads[0, 0].vo.top_pairs(5))
    assert "http" not in html and "url(" not in html and "@import" not in html


def test_every_kind_of_result_has_a_fragment(model):
    from embspace.read.neurons import read_neurons

    results = [
        model.heads[0, 0].qk.top_pairs(5),
        read_neurons(model.ff[0], [1], 5)[0],
        model.token("word3", k=5)[0],
        model.related(0, k=10, overlap=0.05),
        embspace.certify(model),
    ]
    for result in results:
        assert Page(as_html(result)).cells


def test_notebooks_find_it(model):
    result = model.heads[0, 0].vo.top_pairs(5)
    assert result._repr_html_() == as_html(result)


def test_notebooks_typeset_no_token_as_mathematics(model):
    """MathJax leaves elements of these classes alone: 2 by the first name, 3 by the second."""
    html = as_html(model.heads[0, 0].vo.top_pairs(5))
    classes = html.split('class="', 1)[1].split('"', 1)[0].split()
    assert {"embspace", "tex2jax_ignore", "mathjax_ignore"} <= set(classes)
