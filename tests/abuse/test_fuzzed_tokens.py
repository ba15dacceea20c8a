"""Tokens of any text, script, markup and control: labels, filters and every way of showing them."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import embspace
from embspace.errors import EmbspaceError
from embspace.show import as_html
from embspace.weights.labels import labels
from embspace.weights.vocabulary import VocabularySpace

HARD = (
    *("</td><script>x</script>", "<!--", "-->", "]]>", "&lt;", "[/red]", "[link=x]y[/link]", "{0}"),
    *("\x00", "\x1b]8;;http://x\x07", "\x9b31m", "\u202e", "\u2066", "\u200d", "\u200b", "\ufeff"),
    *("\u2028", "\r", "\x85", "\v", "\udc80", "\ud800", "\U000e0001", "\U0010ffff", "\ufffe"),
    *("=cmd()", "@x", "+1", "-1", "\t=1", "\r=1", "'=1", '"', ",", ";", "a\nb", "%s", "\\n", "\\"),
    *(
        "שלום",
        "مرحبا",
        "ไทย",
        "한국어",
        "日本",
        "🇫🇷",
        "👩‍🚀",
        "é",
        "́",
        "ﷺ",
        "𝔘",
        "·",
        "◌",
        "⟪x⟫",
        "#7",
    ),
    *("", " ", "  ", "▁a", "Ġa", "##a", "(empty)", "(row 3: no token)", "None", "NaN", "x" * 500),
)
TEXT = st.one_of(
    st.sampled_from(HARD),
    st.text(st.characters(codec=None), max_size=12),
    st.binary(max_size=6).map(lambda raw: raw.decode("utf8", "surrogateescape")),
    st.lists(st.sampled_from(HARD), max_size=4).map("".join),
)
TEXTS = st.lists(st.one_of(st.none(), TEXT), min_size=1, max_size=40)
SOME = settings(max_examples=60, deadline=None)


ALLOWED = {"div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi"}


class Page(HTMLParser):
    """Tags and attributes of a page, and whether each tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


class Words:
    """As much of a tokenizer as a vocabulary space asks for; every text is one plain token."""

    all_special_ids: tuple[int, ...] = ()

    def __init__(self, texts: list[str | None]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str | None]:
        return [self.texts[i] for i in ids]

    def get_vocab(self) -> dict[str, int]:
        return {text: i for i, text in enumerate(self.texts) if text is not None}

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        found = self.get_vocab()
        return {"input_ids": [found[text]] if text in found else []}


def space_of(texts: list[str | None]) -> VocabularySpace:
    table = torch.randn(len(texts), 3, generator=torch.Generator().manual_seed(len(texts)))
    return VocabularySpace(table, Words(texts))


@SOME
@given(TEXTS)
def test_labels_are_printable_and_tell_every_id_apart(texts):
    shown = space_of(texts).labels
    assert len(shown) == len(set(shown)) == len(texts)
    for label in shown:
        assert label and label.isprintable() and " " not in label.replace(": no token", "")[:4]
        assert not any(
            unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in label
        )
        label.encode("utf8")


@SOME
@given(TEXTS)
def test_labels_survive_a_second_look(texts):
    """A label used as a token gets a label of its own: nothing is unescaped on the way."""
    shown = labels(texts, set())
    again = labels(list(shown), set())
    assert len(set(again)) == len(again)


FILTERS = {
    "ascii": lambda t: t.isascii() and t.isprintable() and t.strip() != "",
    "alnum": lambda t: t.isascii() and t.strip().removeprefix("##").isalnum(),
    "unicode-alnum": lambda t: t.strip().removeprefix("##").isalnum(),
    "text": lambda t: not any(0xD800 <= ord(c) <= 0xDFFF for c in t),
    "re:[a-z]": lambda t: re.search("[a-z]", t) is not None,
    "re:^$": lambda t: re.search("^$", t) is not None,
}


@SOME
@given(TEXTS, st.sets(st.sampled_from(sorted(FILTERS)), min_size=1, max_size=3))
def test_a_filter_keeps_exactly_the_tokens_that_pass_it(texts, names):
    space = space_of(texts)
    wanted = [t is not None and all(FILTERS[name](t) for name in names) for t in space.texts]
    if not any(wanted):
        with pytest.raises(EmbspaceError, match="no token of"):
            space.mask(sorted(names))
        return
    assert space.mask(sorted(names)).tolist() == wanted


@SOME
@given(TEXTS, st.one_of(TEXT, st.text(max_size=20)))
def test_any_name_of_a_filter_is_understood_or_refused_in_a_sentence(texts, name):
    for asked in (name, f"re:{name}", f"file:{name}"):
        try:
            kept = space_of(texts).mask(asked)
        except EmbspaceError as error:
            assert str(error) and len(str(error)) < 600
        else:
            assert kept is None or (kept.dtype == torch.bool and len(kept) == len(texts))


@SOME
@given(TEXTS, TEXT)
@example(["▁a"], "▁a")
def test_any_word_is_found_or_refused_in_a_sentence(texts, word):
    space = space_of(texts)
    try:
        ids = space.token_ids(word)
    except EmbspaceError as error:
        assert str(error) and "Traceback" not in str(error)
        return
    found = [space.texts[i] for i in ids]
    as_piece = word.replace("▁", " ")  # a tokenizer's own spelling of a word start
    mine = (word, f" {word}", as_piece)
    assert all(text in mine or re.fullmatch(r"#\d+", word) for text in found)


@SOME
@given(TEXTS, st.integers(1, 60), st.booleans(), st.booleans())
def test_the_top_of_any_table_is_that_of_the_dense_product(texts, k, smallest, absolute):
    space = space_of(texts)
    vectors = torch.randn(2, 3, generator=torch.Generator().manual_seed(k))
    ids, scores = space.top_ids(vectors, k, smallest=smallest, absolute=absolute and not smallest)
    dense = vectors.double() @ space.table.double().T
    dense = dense.abs() if absolute and not smallest else -dense if smallest else dense
    expected = dense.sort(descending=True, stable=True)
    n = min(k, len(texts))
    assert torch.equal(ids, expected.indices[:, :n])
    torch.testing.assert_close(-scores if smallest else scores, expected.values[:, :n])


@pytest.fixture(scope="module")
def model(tiny_gpt2) -> Any:
    return embspace.load(tiny_gpt2)


def shown_with(model: Any, texts: list[str | None]) -> Iterator[Any]:
    """Results of a model whose first tokens have these texts."""
    space = model.vocabulary
    kept = space.__dict__.pop("texts", None), space.__dict__.pop("labels", None)
    space.__dict__["texts"] = [*texts, *(f"w{i}" for i in range(len(space) - len(texts)))]
    only = torch.zeros(len(space), dtype=torch.bool)
    only[: len(texts)] = True
    space._filters._masks[("mine",)] = only
    try:
        yield model.heads[0, 1].vo.top_pairs(9, filters="mine")
        yield model.ff[1].values[3].top_tokens(40, filters="mine")
    finally:
        for name, value in zip(("texts", "labels"), kept, strict=True):
            space.__dict__.pop(name, None)
            if value is not None:
                space.__dict__[name] = value
        space._filters._masks.clear()


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(TEXT, min_size=6, max_size=40), width=st.sampled_from([40, 80, 132]))
def test_every_way_of_showing_tokens_stays_whole(model, texts, width):
    for result in shown_with(model, texts):
        page = Page(as_html(result))
        assert page.tags <= ALLOWED and page.attributes <= {"class"} and page.open == []
        rows = list(csv.DictReader(io.StringIO(result.to_csv())))
        assert len(rows) == len(result.rows())
        for row, true in zip(rows, result.rows(), strict=True):
            assert not any(cell[:1] in "=+-@\t\r" and cell for cell in texts_of(row, true))
        assert json.loads(result.to_json()) == json.loads(json.dumps(result.to_dict()))
        for encoding in ("utf8", "ascii", "latin1"):
            out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
            Console(file=out, width=width, color_system=None).print(result)
            out.flush()
            text = out.buffer.getvalue().decode(encoding)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
            assert max(cell_len(line) for line in text.split("\n")) <= width


def texts_of(row: dict[str, str], true: dict[str, Any]) -> list[str]:
    return [row[name] for name, value in true.items() if isinstance(value, str)]
