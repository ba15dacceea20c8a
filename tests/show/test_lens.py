"""Grids of tokens in terminals and on the page, with tokens that try to break out of both."""

import json
import re
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

import embspace
from embspace.show.topics.lens import json_block, lens_page
from tests.conftest import AWKWARD
from tests.show.browser import WIDTH, in_browser, needs_browser

WIDTHS = (20, 40, 80, 120, 200)


@pytest.fixture(scope="module")
def hostile(awkward):
    """Every awkward token occurs: the whole vocabulary is the top k of every cell."""
    model = embspace.load(str(awkward))
    return embspace.lens(model, "<s><script>alert(1)</script></s>", "id", k=len(AWKWARD))


@pytest.fixture(scope="module")
def plain(tiny_gpt2):
    return embspace.lens(embspace.load(str(tiny_gpt2)), "The cats saw Paris, and the dogs", "id")


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)


def parsed(text):
    found = Elements()
    found.feed(text)
    return found


def test_tokens_never_become_elements_or_scripts(hostile):
    found = parsed(lens_page(hostile))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("script") == 2 and "b" not in tags and "s" not in tags
    assert len(found.scripts) == 2
    data = json.loads(found.scripts[0])
    assert "<script>alert(1)</script>" in data["id"][0][1]


def test_the_page_asks_for_nothing(hostile):
    text = lens_page(hostile)
    found = parsed(text)
    for tag, attributes in found.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "action", "srcset"} & set(attributes)
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert not re.search(r"url\(|@import|https?:", text)


def test_notebook_fragments_escape_tokens_in_attributes_too(hostile):
    text = hostile._repr_html_()
    tags = parsed(text).tags
    assert "script" not in [tag for tag, _ in tags]
    titles = [attributes["title"] for tag, attributes in tags if "title" in attributes]
    assert titles and any('"' in title or "quoted" in title for title in titles)


def test_json_in_a_page_has_nothing_that_ends_a_script():
    hard = ["</script><script>", "<!--", "&lt;", "\u2028", '"', "\\"]
    text = json_block(hard)
    assert not set("<>&\u2028") & set(text) and json.loads(text) == hard


@needs_browser
def test_a_browser_shows_the_cells_and_runs_nothing_of_the_tokens(hostile, tmp_path):
    look = """
        const cells = page.document.querySelectorAll("td[data-grid]");
        cells[0].dispatchEvent(new page.Event("focus"));
        return [cells.length, page.document.getElementById("tip").textContent];
    """
    n_cells, tip = in_browser(lens_page(hostile), look, tmp_path)
    assert n_cells == 3 * len(hostile.places)
    assert tip.startswith("layer 0, position 0")


MOVE = """
    const doc = page.document, tip = doc.getElementById("tip"), seen = [];
    const press = (key) => doc.activeElement.dispatchEvent(
        new page.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const note = () => {
        const cell = doc.activeElement, a = cell.getBoundingClientRect();
        const b = tip.getBoundingClientRect();
        seen.push([+cell.dataset.row, +cell.dataset.at, tip.textContent.split("\\n")[0],
                   b.top < a.bottom && b.bottom > a.top]);
    };
    doc.querySelector("td[data-grid]").focus(); note();
    for (const key of KEYS) { press(key); note(); }
    return seen;
"""


@needs_browser
@pytest.mark.parametrize(("width", "height"), [(390, 800), (1200, 800), (390, 340), (1200, 340)])
def test_arrow_keys_move_from_cell_to_cell_and_the_tip_never_hides_its_cell(
    plain, tmp_path, width, height
):
    right, down = "ArrowRight", "ArrowDown"
    keys = [right, down, "ArrowLeft", "ArrowUp", "ArrowUp", down, down, down, right]
    script = MOVE.replace("KEYS", json.dumps(keys))
    seen = in_browser(lens_page(plain), script, tmp_path, width=width, height=height)
    places = [(0, 0), (0, 1), (1, 1), (1, 0), (0, 0), (0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]
    assert [(row, at) for row, at, *_ in seen] == places
    rows = plain.grids["id"].rows
    assert [tip for *_, tip, _ in seen] == [f"layer {rows[r]}, position {at}" for r, at in places]
    assert not any(hidden for *_, hidden in seen)


@needs_browser
def test_the_page_is_no_wider_than_a_phone(plain, hostile, tmp_path):
    for result in (plain, hostile):
        assert in_browser(lens_page(result), WIDTH, tmp_path, width=390) <= 390


def drawn(result, width, colour=None):
    out = StringIO()
    Console(file=out, width=width, color_system=colour, force_terminal=bool(colour)).print(result)
    return out.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(plain, hostile, width):
    from rich.cells import cell_len

    for result in (plain, hostile):
        for line in drawn(result, width).splitlines():
            assert cell_len(line) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_a_token_and_its_bar_stand_apart_without_colours(plain, width):
    for line in drawn(plain, width).splitlines():
        assert not re.search(r"[^\s▁▂▃▄▅▆▇█][▁▂▃▄▅▆▇█]", line)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_position_and_layer_is_there_at_every_width(plain, width):
    text = drawn(plain, width)
    numbers = re.findall(r"^ {6,}([\d ]+)$", text, flags=re.MULTILINE)
    shown = [int(n) for line in numbers for n in line.split()]
    assert shown == list(range(len(plain.places)))


def test_probabilities_are_bars_without_colours_and_shades_with_them(plain):
    assert set("▁▂▃▄▅▆▇█") & set(drawn(plain, 100))
    coloured = drawn(plain, 100, "truecolor")
    assert "48;2;" in coloured and not set("▁▂▃▄▅▆▇█") & set(coloured)


def test_two_lenses_stand_side_by_side_where_there_is_room(tiny_gpt2):
    from dataclasses import replace

    found = embspace.lens(embspace.load(str(tiny_gpt2)), "cats", "id")
    both = replace(found, grids={"id": found.grids["id"], "mat": found.grids["id"]})
    wide, narrow = drawn(both, 200), drawn(both, 30)
    assert any("id (logit lens)" in line and "mat" in line for line in wide.splitlines())
    assert not any("id (" in line and "mat" in line for line in narrow.splitlines()[3:-6])


def test_the_page_names_its_prompt_explains_its_colours_and_moves_by_keys(tiny_gpt2):
    import embspace
    from embspace.show.topics.lens import lens_page

    found = embspace.lens(embspace.load(tiny_gpt2), "word3 word4", "id")
    page = lens_page(found)
    title = page.split("<title>")[1].split("</title>")[0]
    assert found.settings["prompt"] and found.settings["prompt"] in title
    assert page.count("<span style=") == 10 and "ArrowLeft" in page
