"""The page of a reproduction: whole, fetching nothing, every token text, at any width."""

import re
import subprocess
from html.parser import HTMLParser

import pytest

import embspace
from embspace.evidence.claims import PAPERS
from embspace.evidence.embedding_steps import Cast, embedding_steps
from embspace.evidence.reproduction import reproduce
from embspace.evidence.steps import Step
from embspace.show import LOOKS
from embspace.show.topics.reproduction import inlined
from tests.show.browser import CHROMIUM, WIDTH, in_browser, needs_browser

pytest.importorskip("matplotlib")
VOID = {"meta", "br"}
MARKUP = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Tags in order, their attributes, all text; fails where an element is closed wrongly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all_of(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def html(awkward, tmp_path_factory):
    """The weights-only steps, void ones, and one whose table and title are hostile."""
    model = embspace.load(awkward)
    tokens = Step(
        "tokens", MARKUP, MARKUP, lambda progress: model.vectors(0, 1, "o")[3].top_tokens(39)
    )
    others = embedding_steps(Cast(model, None), quick=True)
    out = tmp_path_factory.mktemp("page") / MARKUP.replace("/", "")
    how = {"models": {"model": model}, "looks": LOOKS, "quick": True}
    reproduce("embedding", [tokens, *others], out, **how)
    return (out / "index.html").read_text(encoding="utf8"), model, out


@pytest.fixture(scope="module")
def page(html):
    return Page(html[0])


def test_elements_are_closed_and_ids_are_unique(page):
    ids = page.all_of("id")
    assert len(ids) == len(set(ids)) > 20
    links = {link[1:] for link in page.all_of("href") if link.startswith("#")}
    assert links <= set(ids)


def test_nothing_is_fetched(html, page):
    outside = [
        value
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset")
        for value in page.all_of(name)
        if re.match(r"[a-z]+:|//", value) and not value.startswith("data:image/png;base64,")
    ]
    assert outside == [f"https://arxiv.org/abs/{PAPERS['embedding']}"]
    assert "@import" not in html[0] and not re.search(r"url\((?!#)", html[0])
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy


def test_links_to_files_lead_to_files(html, page):
    local = [link for link in page.all_of("href") if not re.match(r"#|https:", link)]
    assert local and all((html[2] / link).is_file() for link in local)


def test_every_token_is_text(html, page):
    labels = html[1].vocabulary.labels
    assert set(labels) <= set(page.text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "iframe", "img", "object", "embed", "link", "form"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_claims_say_what_holds_and_what_not(html, page):
    text = " ".join(page.text)
    assert "not applicable" in text and "quick" in text
    assert "give --tuned" in text


def test_two_figures_do_not_share_ids():
    drawing = '<?xml?><svg width="9pt" height="4pt" id="a"><use xlink:href="#a"/>'
    drawing += '<g clip-path="url(#a)"/><metadata>x</metadata></svg>'
    found = inlined(drawing, "one", "a & b")
    assert 'id="one-a"' in found and 'href="#one-a"' in found and "url(#one-a)" in found
    assert "metadata" not in found and "a &amp; b" in found and "max-width:9pt" in found


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_window(html, tmp_path, width):
    assert in_browser(html[0], WIDTH, tmp_path, width=width) <= width


@needs_browser
@pytest.mark.parametrize("size", ["390,1200", "1280,1200"])
def test_a_browser_draws_it(html, tmp_path, size):
    picture = tmp_path / "page.png"
    subprocess.run(
        [
            *(str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu"),
            *(f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={size}"),
            *(f"--screenshot={picture}", html[2].joinpath("index.html").as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
