"""Labelled texts from every source: none on two sides, wrong ones refused in a sentence."""

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from embspace.errors import TextError
from embspace.text.labelled import Labelled, read_split, read_test


def texts_of(split) -> list[set[str]]:
    return [set(side.texts) for side in (split.train, split.validation, split.test)]


def apart(split) -> bool:
    """Whether no text lies on two sides."""
    train, validation, test = texts_of(split)
    return not (train & validation or train & test or validation & test)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """aclImdb's layout: two sides, two labels, texts without one beside them."""
    for side in ("train", "test"):
        for label in ("pos", "neg", "unsup"):
            home = tmp_path / side / label
            home.mkdir(parents=True)
            for n in range(10):
                (home / f"{n}.txt").write_text(f"{label} {side}<br />no {n}", encoding="utf8")
    return tmp_path


def test_a_folder_of_reviews_is_read_with_its_own_sides(folder):
    split = read_split(folder)
    assert split.train.names == ("negative", "positive") and apart(split)
    train, validation, test = texts_of(split)
    assert test == {f"{label} test no {n}" for label in ("pos", "neg") for n in range(10)}
    assert train | validation == {text.replace("test", "train") for text in test}
    for side in (split.train, split.validation, split.test):
        for text, label in zip(side.texts, side.labels, strict=True):
            assert side.names[label].startswith(text[:3])


def test_a_text_on_both_sides_is_kept_for_the_test_only(folder):
    shared = (folder / "test/pos/0.txt").read_text(encoding="utf8")
    (folder / "train/pos/0.txt").write_text(shared, encoding="utf8")
    (folder / "train/pos/1.txt").write_text(shared, encoding="utf8")
    split = read_split(folder)
    assert split.n_dropped == 2 and apart(split) and len(split.test) == 20


def test_fewer_texts_are_drawn_from_all_labels_and_the_same_for_a_seed(folder):
    some = read_split(folder, n_train=10, n_test=6, seed=3)
    assert (len(some.train) + len(some.validation), len(some.test)) == (10, 6)
    assert set(some.train.labels) == {0, 1}
    again = read_split(folder, n_train=10, n_test=6, seed=3)
    assert again == some and again.train.digest == some.train.digest
    assert read_split(folder, n_train=10, n_test=6, seed=4).train != some.train
    assert read_test(folder, n_test=6, seed=3) == some.test


def table(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
        return path
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_table_is_parted_and_its_columns_are_named_or_found(tmp_path, name):
    rows = [{"body": f'text {n}, "quoted"', "mood": n % 3, "text": "same"} for n in range(30)]
    split = read_split(table(tmp_path / name, rows), text_column="body", label_column="mood")
    assert apart(split) and len(split.test) == 6 and split.train.names == ("0", "1", "2")
    assert sum(map(len, texts_of(split))) == 30
    usual = [{"review": row["body"], "sentiment": row["mood"]} for row in rows]
    assert read_split(table(tmp_path / f"b{name}", usual)) == read_split(
        table(tmp_path / f"b{name}", usual), text_column="review"
    )


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        ([{"a": "x", "b": "y"}] * 9, {}, "give text_column=NAME"),
        ([{"text": "x", "b": "y"}] * 9, {}, "give label_column=NAME"),
        ([{"text": "x", "label": "y"}] * 9, {"text_column": "words"}, "no column words"),
        ([{"text": f"t{n}", "label": "y"} for n in range(9)], {}, "at least two"),
        ([{"text": f"t{n}", "label": n} for n in range(200)], {}, "200 labels"),
        ([{"text": 3, "label": 1}] * 9, {}, "no text"),
        ([{"text": "t", "label": [1]}] * 9, {}, "no label"),
        ([{"text": f"t{n}", "label": n} for n in range(2)], {}, "too few"),
    ],
    ids=str,
)
def test_a_table_that_will_not_do_is_refused_in_a_sentence(tmp_path, rows, columns, said):
    with pytest.raises(TextError, match=said) as caught:
        read_split(table(tmp_path / "a.jsonl", rows), **columns)
    assert "\n" not in str(caught.value)


def test_wrong_sources_are_refused(tmp_path):
    with pytest.raises(TextError, match="no labelled texts"):
        read_split("nowhere")
    with pytest.raises(TextError, match="train should hold"):
        read_split(tmp_path)
    (tmp_path / "x.csv").write_bytes(b"text,label\n\xff\xfe,1\n")
    with pytest.raises(TextError, match="cannot be read"):
        read_split(tmp_path / "x.csv")


def test_imdb_without_its_library_or_the_hub_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TextError, match="datasets library"):
        read_split("imdb")

    def offline(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=offline))
    with pytest.raises(TextError, match=r"cannot be had from the Hub \(no route\)"):
        read_split("imdb")


def test_imdb_keeps_its_labels(monkeypatch):
    def load_dataset(name, split):
        return [{"text": f"{split} {n}", "label": n % 2} for n in range(20)]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    split = read_split("imdb")
    assert split.test.names == ("negative", "positive")
    assert all(
        int(t.split()[1]) % 2 == l for t, l in zip(split.test.texts, split.test.labels, strict=True)
    )


def test_the_bundled_reviews_come_in_both_kinds():
    split = read_split("sample", n_train=20, n_test=10)
    assert apart(split) and set(split.train.names) == {"negative", "positive"}
    assert len(split.test) == 10


def test_labels_are_numbered_as_a_classifier_has_them():
    given = Labelled(("a", "b"), (0, 1), ("bad", "good"))
    assert given.named(("good", "bad")).labels == (1, 0)
    with pytest.raises(TextError, match="good"):
        given.named(("bad", "worse"))
