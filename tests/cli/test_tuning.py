"""finetune, stitch and diff from the command line: one after the other, and refused in a line."""

import csv
import io
import json

import pytest

WORDS = ("good", "bad")


@pytest.fixture
def data(tmp_path):
    """A table of labelled texts."""
    path = tmp_path / "texts.csv"
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["said", "mood"])
        writer.writerows([f"{WORDS[n % 2]} day no {n}", WORDS[n % 2]] for n in range(40))
    return path


COLUMNS = ("--text-column", "said", "--label-column", "mood")


def test_a_classifier_is_made_stitched_and_compared(run, tiny_gpt2, data, tmp_path):
    out = tmp_path / "classifier"
    how = ("--data", data, *COLUMNS)
    made = run("finetune", tiny_gpt2, *how, "--out", out, "--epochs", 1, "--json")
    assert made.exit_code == 0, made.stderr
    record = json.loads(made.stdout)
    assert record["labels"] == ["bad", "good"] and (out / "classifier.json").is_file()
    assert "wrote" in made.stderr

    joined = run("stitch", tiny_gpt2, out, *how, "--keep", "0-1", "--transplant", "3", "--csv", "-")
    assert joined.exit_code == 0, joined.stderr
    rows = list(csv.DictReader(io.StringIO(joined.stdout)))
    assert [row["kept"] for row in rows] == ["0", "1"]
    assert all(float(row["low"]) <= float(row["accuracy"]) <= float(row["high"]) for row in rows)

    again = run("finetune", tiny_gpt2, *how, "--out", out)
    assert again.exit_code == 1 and "is there already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("finetune", "--data", "nowhere", "--out", "x"), "no labelled texts"),
        (("finetune", "--data", "sample", "--out", "a/b/c"), "no folder"),
        (("finetune", "--data", "sample", "--out", "x", "--resume"), "nothing to resume"),
        (("stitch", "sample-gpt2", "sample-gpt2-b", "--data", "sample"), "embspace finetune"),
        (("diff", "sample-gpt2", "sample-gpt2-b"), "is no fine-tuned"),
        (("diff", "sample-gpt2", "sample-gpt2", "--words", "no.txt"), "no.txt"),
    ],
    ids=str,
)
def test_what_will_not_do_is_one_line(run, in_folder, arguments, said):
    result = run(*arguments)
    assert result.exit_code == 1 and result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note:")]
    assert len(lines) == 1 and said in lines[0], result.stderr
    assert not list(in_folder.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("finetune", "--out", "x"),
        ("finetune", "--data", "sample"),
        ("stitch", "--data", "sample", "--keep", "3-1"),
        ("stitch", "--data", "sample", "--keep", "some"),
        ("stitch", "--data", "sample", "--kernel", "inverse"),
        ("diff", "--groups", "K,"),
        ("diff", "sample-gpt2"),
    ],
    ids=str,
)
def test_wrong_usage_is_2(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 2 and "Error" in result.stderr and result.stdout == ""
