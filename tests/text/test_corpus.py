"""Sentences from every kind of source; what cannot be read says so in one sentence."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from embspace import load
from embspace.errors import EmbspaceError, TextError
from embspace.text.sources import sentences_of
from embspace.text.text import Text

LINES = ("One line.", "Two <b>lines</b> & more", "Drei Zeilen: ä, 漢字, \U0001f600")


def written(path: Path, kind: str) -> Path:
    """The three lines in a file of some kind."""
    if kind == ".txt":
        text = "\n".join(LINES)
    elif kind == ".jsonl":
        text = "\n".join(json.dumps({"id": 1, "text": line}) for line in LINES)
    else:
        mark = {".csv": ",", ".tsv": "\t"}[kind]
        text = "\n".join([f"id{mark}text", *(f'1{mark}"{line}"' for line in LINES)])
    file = path / f"lines{kind}"
    file.write_text(text, encoding="utf8")
    return file


@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".tsv"])
def test_every_kind_of_file_gives_the_same_lines_and_hash(tmp_path, kind):
    corpus = Text.read(written(tmp_path, kind))
    assert corpus.lines == LINES
    assert corpus.digest == Text.read(list(LINES)).digest
    assert corpus.source == f"lines{kind}"


@pytest.mark.parametrize("kind", [".txt", ".csv"])
def test_a_mark_of_utf8_at_the_start_is_no_text(tmp_path, kind):
    file = written(tmp_path, kind)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert Text.read(file).lines == LINES


def test_a_folder_gives_its_text_files_in_the_order_of_their_names(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.txt").write_text("third\n")
    (tmp_path / "a.txt").write_text("first\n\nsecond\n")
    (tmp_path / "z.md").write_text("not read")
    assert Text.read(tmp_path).lines == ("first", "second", "third")


def test_blank_lines_are_left_out_and_ends_trimmed(tmp_path):
    file = tmp_path / "t"
    file.write_bytes(b"\n  a b \r\n\t\n\xc2\xa0\nc\n\n")
    assert Text.read(file).lines == ("a b", "c")


def test_odd_bytes_that_are_text_are_kept(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes(b"a\x00b\na\x1b[31mb\n<script>x</script>\n")
    assert Text.read(file).lines == ("a\x00b", "a\x1b[31mb", "<script>x</script>")


def test_line_breaks_inside_a_cell_do_not_make_lines(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text('text\n"one\ntwo, ""three"""\nfour\n')
    assert Text.read(file).lines == ('one two, "three"', "four")


@pytest.mark.parametrize("name", ["t.JSONL", "t.json", "t.ndjson", "t.Csv", "t.TSV"])
def test_a_table_is_one_whatever_its_ending_is_written_like(tmp_path, name: str):
    """Else its markup and its header would be taken for sentences."""
    kind = {"csv": ".csv", "tsv": ".tsv"}.get(name[2:].lower(), ".jsonl")
    file = written(tmp_path, kind).rename(tmp_path / name)
    assert Text.read(file).lines == LINES


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", 'id,text\n1,"left open\n2,two\n3,three\n', "cannot be read as CSV"),
        ("t.tsv", 'id\ttext\n1\t"left open\n2\ttwo\n', "cannot be read as TSV"),
        ("t.csv", "text,text\none,two\n", "two columns are called text"),
        ("t.json", '["one", "two"]', "one object a line"),
        ("t.json", '[\n"one",\n"two"\n]\n', "cannot be read as JSON lines"),
    ],
)
def test_a_table_that_can_be_read_two_ways_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(TextError, match=message) as caught:
        Text.read(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_the_column_can_be_named_and_usual_names_are_found(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"review": "r", "body": "b"}\n\n{"body": "c", "review": "s"}\n')
    assert Text.read(file, column="body").lines == ("b", "c")
    assert Text.read(file).lines == ("r", "s")


def test_a_limit_reads_no_more(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b"}\nnot json\n')
    assert Text.read(file, limit=2).lines == ("a", "b")


def test_the_bundled_writer_gives_the_same_sentences_each_time():
    for style in ("reference", "story"):
        corpus = Text.read(f"sample:{style}", limit=50)
        assert len(corpus) == 50
        assert corpus == Text.read(f"sample:{style}", limit=50)
    assert (
        Text.read("sample:story", limit=9).digest != Text.read("sample:reference", limit=9).digest
    )


def test_the_hash_is_of_the_sentences_in_order():
    one = Text.read(["a", "b"])
    assert one.digest == Text.read(("a", " b ")).digest
    assert one.digest != Text.read(["b", "a"]).digest
    assert one.marks([1]) == Text.read(["b"]).marks([0])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.txt", b"fine\n\xff\xfe\n", "UTF-8"),
        ("t.csv", b"text\n\xff\n", "cannot be read as CSV"),
        ("t.jsonl", b'{"text": "a"}\n{"text": \n', "cannot be read as JSON lines"),
        ("t.jsonl", b"[" * 100_000, "cannot be read as JSON lines"),
        ("t.jsonl", b"[1]\n", "one object a line"),
        ("t.jsonl", b'{"text": 5}\n', "no text"),
        ("t.jsonl", b'{"texts": "a"}\n', "has no column text or .*give column=NAME"),
        ("t.csv", b"id,words\n1,a\n", "it has id, words"),
        ("t.csv", b"id,text\n1\n", "no text"),
        ("t.txt", b"\n \n\t\n", "holds no text"),
        ("t.txt", b"", "holds no text"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name, content, said):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(TextError, match=said) as error:
        Text.read(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "source", ["no/such/file", "sample:none", [], ["a", 5], [b"a"], 5, [None], "x" * 5000, "a\0b"]
)
def test_what_is_no_source_is_refused(source):
    with pytest.raises(EmbspaceError):
        Text.read(source)


def test_a_folder_without_text_files_is_refused(tmp_path):
    with pytest.raises(TextError, match="holds no text"):
        Text.read(tmp_path)


def test_a_named_column_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TextError, match="has no column body"):
        Text.read(written(tmp_path, ".jsonl"), column="body")


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_limit_is_a_number_of_lines(limit):
    with pytest.raises(EmbspaceError, match="limit"):
        Text.read(["a"], limit=limit)


def test_a_table_in_parquet_is_read_or_names_what_it_needs(tmp_path):
    file = tmp_path / "t.parquet"
    if importlib.util.find_spec("pyarrow") is None:
        file.write_bytes(b"PAR1")
        with pytest.raises(TextError, match="pyarrow"):
            Text.read(file)
        return
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"id": [1, 2, 3], "text": list(LINES)}), file)
    assert Text.read(file).lines == LINES
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(TextError, match="parquet"):
        Text.read(file)


def test_a_hub_data_set_without_its_library_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(TextError, match=r"datasets library: pip install 'embspace\[hub-data\]'"):
        Text.read("hub:some/thing@config#train")


def test_a_data_set_is_streamed_and_long_texts_are_cut_into_sentences(tmp_path):
    pytest.importorskip("datasets")
    from pyarrow import Table, parquet

    said = [
        f"The keeper of house {n} feeds the birds. Every evening she counts them all twice."
        for n in range(50)
    ]
    parquet.write_table(
        Table.from_pydict({"id": list(range(50)), "text": said}), tmp_path / "train.parquet"
    )
    source = f"hub:{tmp_path}#train"
    found = Text.read(source)
    assert found.source == source and len(found) == 100 and found.lines[1].startswith("Every")
    assert Text.read(source, limit=7).lines == found.lines[:7]
    for wrong, why in ((f"hub:{tmp_path}#test", "split"), (f"hub:{tmp_path}/none", "none")):
        with pytest.raises(TextError, match=why):
            Text.read(wrong)
    with pytest.raises(TextError, match="no column body"):
        Text.read(source, column="body")


def test_without_text_and_without_the_hub_one_sentence_names_text(tiny_gpt2, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(TextError, match="give text=FILE") as error:
        Text.of(None, load(tiny_gpt2))
    assert "\n" not in str(error.value)


def test_long_texts_are_cut_into_sentences():
    text = 'He saw a very big dog. "It was not a small cat," she said. no. ' + "Word " * 70
    assert list(sentences_of(text)) == [
        "He saw a very big dog.",
        '"It was not a small cat," she said. no.',
    ]


def test_a_broken_json_line_is_named_by_its_number(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n\n{"text": \n')
    with pytest.raises(TextError, match="line 3"):
        Text.read(tmp_path / "bad.jsonl")
