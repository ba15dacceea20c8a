"""`embspace exit` and `embspace alternate` print what the library returns."""

import csv
import io
import json

import pytest

import embspace
from embspace.text.text import Text

LINES = [f"the cats and {n} dogs saw {n + 3} of her brothers sing in Rome {n}" for n in range(48)]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text("\n".join(LINES), encoding="utf8")
    return path


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


def test_exit_prints_the_result(run, tiny_gpt2, text, model):
    how = ("--text", text, "--target", "0.5", "--lambdas", "0.2,0.6", "--exits", "1,2")
    found = run("exit", tiny_gpt2, *how, "--seed", 2, "--json")
    assert found.exit_code == 0, found.output
    expected = embspace.exits(
        model, None, Text.read(text, seed=2), target=0.5, lambdas=(0.2, 0.6), layers=(1, 2)
    ).to_dict()
    mine = json.loads(found.stdout)
    for one in (mine, expected):  # fitted now, or remembered
        one["notes"] = [note for note in one["notes"] if "rows of" not in note]
        one["settings"].pop("text")
    assert mine == json.loads(json.dumps(expected))


def test_exit_shows_choice_curve_and_histogram(run, tiny_gpt2, text, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "exit.svg"
    found = run("exit", tiny_gpt2, "--text", text, "--plot", figure, COLUMNS="80")
    assert found.exit_code == 0, found.output
    for words in ("chosen", "mat confidence", "confidence exit over λ", "rows by blocks run"):
        assert words in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert figure.read_text(encoding="utf8").startswith("<?xml") and "wrote" in found.stderr


def test_exit_generates_with_what_it_chose(run, tiny_gpt2, text):
    how = ("--text", text, "--target", "0.4", "--generate", "her cats", "--tokens", 5)
    found = run("exit", tiny_gpt2, *how, "--json")
    assert found.exit_code == 0, found.output
    made = json.loads(found.stdout)
    assert set(made["agreement"]) == {"maps", "copy", "recompute"}
    assert made["settings"]["fill"] == "maps" and len(made["texts"][0]["ids"]) <= 5
    shown = run("exit", tiny_gpt2, *how)
    assert "full model" in shown.stdout and "tokens/s" in shown.stdout


def test_alternate_prints_the_result(run, tiny_gpt2, text, model, tmp_path):
    path = tmp_path / "schedules.csv"
    how = ("--text", text, "--schedule", "rr:2,1", "--schedule", "r2", "--budgets", "1,2")
    found = run("alternate", tiny_gpt2, *how, "--json")
    assert found.exit_code == 0, found.output
    expected = embspace.alternate(model, None, text, schedules=["rr:2,1", "r2"], budgets=[1, 2])
    mine = json.loads(found.stdout)["schedules"]
    assert mine == json.loads(json.dumps(expected.to_dict()["schedules"]))
    assert run("alternate", tiny_gpt2, *how, "--csv", path).exit_code == 0
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf8"))))
    assert [row["schedule"] for row in rows] == [one["schedule"] for one in mine]


def test_alternate_shows_every_kind_of_schedule(run, tiny_gpt2, text, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "alternate.png"
    found = run("alternate", tiny_gpt2, "--text", text, "--plot", figure, COLUMNS="80")
    assert found.exit_code == 0, found.output
    for words in ("single: ", "rr: weighted", "r2: largest", "best: found", "##."):
        assert words in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("exit", "--target", "1.2"), 2, "target"),
        (("exit", "--lambdas", "0.1,x"), 2, "between commas"),
        (("exit", "--exits", "9"), 1, "layer 9"),
        (("exit", "sample-bert-a", "--generate", "a"), 1, "masked model"),
        (("exit", "--generate", ""), 1, "no token"),
        (("alternate", "--schedule", "rr:1,2"), 1, "round robin"),
        (("alternate", "--schedule", "worst"), 1, "unknown schedule"),
        (("alternate", "--beam", "0"), 2, "beam"),
        (("alternate", "--budgets", "9"), 1, "number of blocks 9"),
    ],
)
def test_wrong_usage_is_one_line(run, arguments, code, words):
    found = run(*arguments, "--no-check")
    assert found.exit_code == code and words in found.stderr and "Traceback" not in found.output
    assert found.stdout == ""
