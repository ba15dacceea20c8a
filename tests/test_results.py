"""Results derive their dict, rows and list behaviour from their fields."""

import csv
import io
import json
import sys

import numpy as np
import pytest
import torch

import embspace
from embspace.errors import EmbspaceError


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


def test_a_list_of_pairs_has_a_length_is_iterated_and_indexed(model):
    found = model.heads[0, 1].vo.top_pairs(7)
    assert len(found) == 7
    assert [pair.score for pair in found] == sorted((p.score for p in found), reverse=True)
    assert found[0] == next(iter(found)) and found[-1] == found.pairs[6]
    assert found[:2] == found.pairs[:2]


def test_both_ends_of_a_vector_are_listed_by_the_upper_one(model):
    found = model.ff[0].values[3].top_tokens(4)
    assert [token.id for token in found] == [token.id for token in found.top]


def test_json_and_csv_hold_the_raw_text_beside_the_label(model):
    texts, labels = model.vocabulary.texts, model.vocabulary.labels
    found = model.heads[1, 0].qk.top_pairs(20)
    for row in json.loads(found.to_json())["pairs"]:
        assert row["source_text"] == texts[row["i"]] and row["source"] == labels[row["i"]]
        assert row["target_text"] == texts[row["j"]] and row["target"] == labels[row["j"]]
    tokens = model.vectors(0, 1, "o")[2].top_tokens(20)
    for row in csv.DictReader(io.StringIO(tokens.to_csv())):
        expected = texts[int(row["id"])].encode("utf8", "backslashreplace").decode("utf8")
        assert row["text"].removeprefix("'") == expected
        assert row["token"].removeprefix("'") == labels[int(row["id"])]


def test_the_dict_of_a_result_has_every_field(model):
    found = model.heads[0, 0].vo.top_pairs(2)
    assert list(found.to_dict()) == [
        *("layer", "head", "circuit", "pairs", "rms", "settings", "provenance", "notes")
    ]
    assert found.to_dict()["pairs"][1]["score"] == found.pairs[1].score


def test_a_table_of_rows_becomes_a_data_frame(model, monkeypatch):
    found = model.heads[0, 0].vo.top_pairs(5)
    pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert list(frame["score"]) == [pair.score for pair in found]
    assert list(frame.columns) == list(found.rows()[0]) and frame["source_text"][0] is not None
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EmbspaceError, match="pip install pandas"):
        found.to_pandas()


@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
def test_top_takes_vectors_of_any_shape_and_kind_and_returns_tokens(model, kind):
    x = torch.randn(2, 3, model.d, generator=torch.Generator().manual_seed(1))
    given = x.tolist() if kind is list else kind(x.tolist())
    found = model.vocabulary.top(given, k=4)
    assert (len(found), len(found[0]), len(found[0][0])) == (2, 3, 4)
    dense = x[1, 2].double() @ model.vocabulary.E.double()
    best = dense.argsort(descending=True)[:4].tolist()
    assert [token.id for token in found[1][2]] == best
    assert found[1][2][0].score == pytest.approx(float(dense[best[0]]), abs=1e-4)
    assert model.vocabulary.top(given[1][2], k=4) == found[1][2]
    assert found[1][2][0].text == model.vocabulary.texts[best[0]]


def test_the_tokenizer_is_at_hand(model):
    assert model.tokenizer is model.vocabulary.tokenizer
    assert model.tokenizer("cats")["input_ids"]
