"""`embspace relations`: files in, JSON, CSV and one head out; wrong use is said."""

import csv
import io
import json

import pytest

PAIRS = "deer\tfawn\nduck\tduckling\ncow\tcalf\ndog\tpuppy\ncat\tkitten\nbear\tcub\nbee\tno-such\n"


@pytest.fixture
def young(tmp_path):
    """A file of pairs, one of which is not in the sample's vocabulary."""
    file = tmp_path / "young.tsv"
    file.write_text(PAIRS)
    return file


def test_a_file_of_pairs_gives_shares_by_layer_and_head(run, young):
    found = run("relations", "sample-gpt2", "--pairs", young, "--json")
    one = json.loads(found.stdout)["relations"]["young"]
    assert (one["pairs"], one["k"]) == (6, 10)
    assert one["promote"][0][5] > 0.8 and len(one["promote"]) == 4


def test_csv_has_a_row_a_head(run, young):
    found = run("relations", "sample-gpt2", "--pairs", young, "--csv", "-", "--top", 3)
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert len(rows) == 32 and rows[5]["head"] == "5" and rows[5]["k"] == "3"


def test_tables_say_what_was_left_out(run, young):
    found = run("relations", "sample-gpt2", "--pairs", young, "--source", "first-mlp")
    assert "1 of 7 pairs are left out" in found.stdout and "first-mlp" in found.stdout


@pytest.mark.parametrize("place", ["0.5", "L0H5", "0x5"])
def test_one_head_lists_its_relations_with_examples(run, young, place):
    found = run("relations", "sample-gpt2", "--pairs", young, "--head", place)
    assert "relations of head 0.5" in found.stdout and "deer → fawn" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--head", "five"], 2, "give a layer and a head"),
        (["--head", "9.9"], 1, "layer"),
        (["--pairs", "missing.tsv"], 1, "missing.tsv"),
        (["--source", "nowhere"], 2, "nowhere"),
        (["--head", "0.5", "--plot", "a.svg"], 2, "--head"),
    ],
)
def test_wrong_use_is_said_in_one_line(run, in_folder, arguments, code, said):
    found = run("relations", "sample-gpt2", *arguments)
    assert found.exit_code == code and said in found.stderr and not found.stdout
