"""Texts of any bytes, cut tables, wrong types: sentences, or one sentence that says why not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from embspace.errors import EmbspaceError
from embspace.text.labelled import Labelled, read_split
from embspace.text.passages import read_positions
from embspace.text.text import Text

MANY = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ENDINGS = ("txt", "jsonl", "csv", "tsv", "parquet")
ROWS = [{"text": f"the cat {n} saw Rome", "label": ("good", "bad")[n % 2]} for n in range(40)]
TABLES = {
    "jsonl": "\n".join(json.dumps(row) for row in ROWS),
    "csv": "text,label\n" + "\n".join(f"{row['text']},{row['label']}" for row in ROWS),
    "tsv": "text\tlabel\n" + "\n".join(f"{row['text']}\t{row['label']}" for row in ROWS),
}
PIECES = st.sampled_from(
    [
        *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"\n", b"\r", b"\r\n", b"\t", b",", b"{"),
        *(
            b"}",
            b"[",
            b"]" * 50,
            b'{"text":',
            b"null",
            b"NaN",
            b"1e999",
            b"\\ud800",
            b"text",
            b"PAR1",
        ),
        *(b"\xe2\x80\xa8", b"\xc2\x85", b"label", b"Infinity", b"9" * 5000, b"[" * 5000, b"true"),
    ]
)
BYTES = st.one_of(st.binary(max_size=80), st.lists(PIECES, max_size=12).map(b"".join))
DEEP = b'{"text":' + b"[" * 200_000


def told(read: Callable[[], Any]) -> Any:
    """The result, or None where the reader said in one sentence why there is none."""
    try:
        return read()
    except EmbspaceError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 700, message
        message.encode("utf8", "strict" if message.isprintable() else "backslashreplace")
        return None


@MANY
@given(BYTES, st.sampled_from(ENDINGS), st.sampled_from([None, "text", "", "no such"]))
@example(DEEP, "jsonl", None)
@example(b"text\n" + b'"' + b"x" * 200_000, "csv", None)
def test_any_bytes_are_sentences_or_refused(tmp_path, content, ending, column):
    path = tmp_path / f"x.{ending}"
    path.write_bytes(content)
    found = told(lambda: Text.read(path, column=column))
    if found is not None:
        assert isinstance(found, Text) and len(found) and found.digest
        assert all(line.strip() == line and line for line in found.lines)
        assert found.marks(range(len(found)))


@MANY
@given(BYTES, st.sampled_from(ENDINGS[1:]))
@example(DEEP, "jsonl")
def test_any_bytes_are_labelled_texts_or_refused(tmp_path, content, ending):
    path = tmp_path / f"x.{ending}"
    path.write_bytes(content)
    found = told(lambda: read_split(path))
    assert found is None or {len(found.train.names)} <= set(range(2, 101))


@MANY
@given(st.sampled_from(sorted(TABLES)), st.data())
def test_a_damaged_table_is_read_as_far_as_it_is_one_or_refused(tmp_path, ending, data):
    content = bytearray(TABLES[ending].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(1, len(content))) :]
    path = tmp_path / f"x.{ending}"
    path.write_bytes(content)
    found = told(lambda: read_split(path, n_train=20, n_test=9))
    if found is not None:
        sides = (found.train, found.validation, found.test)
        texts = [text for side in sides for text in side.texts]
        assert len(texts) == len(set(texts)) and all(isinstance(side, Labelled) for side in sides)
    told(lambda: Text.read(path))


@MANY
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["text", "label", "x"]), inner)
            ),
            max_leaves=5,
        ),
        max_size=6,
    )
)
def test_rows_of_the_wrong_type_are_refused(tmp_path, rows):
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf8")
    told(lambda: read_split(path))
    found = told(lambda: Text.read(path))
    wrong = any(not isinstance(row, dict) or not isinstance(row.get("text"), str) for row in rows)
    assert found is None or not wrong or "text" not in rows[0]


@MANY
@given(BYTES, st.integers(1, 6))
@example(b"9" * 5000, 1)
@example("٣".encode(), 1)
def test_any_bytes_are_positions_or_refused(tmp_path, content, n):
    path = tmp_path / "places.txt"
    path.write_bytes(content)
    found = told(lambda: read_positions(path, range(n), n))
    if found is not None:
        assert len(found) == n and all(place is None or isinstance(place, int) for place in found)


@pytest.mark.parametrize("kind", ["folder", "loop", "missing", "fifo", "secret", "long", "nul"])
def test_what_is_no_file_of_text_is_refused(tmp_path, kind: str):
    import os

    path: Any = tmp_path / "x.jsonl"
    if kind == "folder":
        path.mkdir()
        path = tmp_path / "x.jsonl" / "none"
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "fifo":
        os.mkfifo(tmp_path / "pipe")
        path = tmp_path  # a folder that holds a pipe and no text
    elif kind == "secret":
        if os.geteuid() == 0:
            path = Path("/proc/self/mem")  # opens, and cannot be read
        else:
            path.write_text("{}")
            path.chmod(0)
    elif kind == "long":
        path = "x" * 5000
    elif kind == "nul":
        path = "a\0b.jsonl"
    assert told(lambda: Text.read(path)) is None
    assert told(lambda: read_split(path)) is None


def test_a_folder_of_reviews_with_odd_files_is_read_or_refused(tmp_path):
    for side in ("train", "test"):
        for label in ("pos", "neg"):
            (tmp_path / side / label).mkdir(parents=True)
            for n in range(9):
                (tmp_path / side / label / f"{n}.txt").write_text(f"{side} {label} {n} <br />x")
    whole = read_split(tmp_path)
    assert "<br />" not in " ".join(whole.test.texts)
    (tmp_path / "train" / "pos" / "folder.txt").mkdir()
    assert told(lambda: read_split(tmp_path)) is None
    (tmp_path / "train" / "pos" / "folder.txt").rmdir()
    (tmp_path / "train" / "neg" / "empty.txt").write_bytes(b"")
    assert read_split(tmp_path).train.texts == whole.train.texts
    (tmp_path / "train" / "neg" / "odd.txt").write_bytes(b"\xff\xfe\x00")
    assert told(lambda: read_split(tmp_path)) is None


@pytest.mark.parametrize("given", [None, 3, 3.5, [1], [b"x"], [None], [], [""], {"a": 1}, object()])
def test_what_is_no_list_of_sentences_is_refused(given):
    if given == {"a": 1}:
        assert Text.read(given).lines == ("a",)  # its keys: the sentences of any iterable
        return
    with pytest.raises(EmbspaceError):
        Text.read(given)


@MANY
@given(st.lists(st.text(st.characters(codec=None), max_size=8), min_size=1, max_size=8))
def test_sentences_of_any_characters_have_a_hash_and_stay_apart(lines):
    found = told(lambda: Text.read(lines))
    if found is not None:
        assert len(found.marks(range(len(found)))) == len(found)
        assert found.digest == Text.read(list(found.lines)).digest
