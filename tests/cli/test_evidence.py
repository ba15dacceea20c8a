"""The experiments on the command line: what they print is what the API returns."""

import csv
import io
import json
import re
import shlex

import click
import embspace_data
import pytest
from embspace_cli.evidence import EXPERIMENTS
from embspace_cli.evidence import command as group

import embspace
from embspace import evidence
from embspace.text.text import Text

SENTENCES = embspace_data.sentences("reference", 8, 3)


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES), encoding="utf8")
    return path


def as_json(result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_pairs(run, tiny_gpt2, model):
    found = as_json(run("evidence", "pairs", tiny_gpt2, "--pairs", 20, "-k", 30, "--json"))
    assert found == evidence.pairs(model, sample=20, k=30).to_dict()
    all_of_one = ("--all", "--layer", 1, "--norm", "folded", "--json")
    found = as_json(run("evidence", "pairs", tiny_gpt2, *all_of_one))
    assert found == evidence.pairs(model, sample=None, layers=[1], norm="folded").to_dict()


def test_inverse(run, tiny_gpt2, model):
    options = ("--vectors", 9, "--keep", 4, "--keep", 50, "--seed", 2, "--json")
    found = as_json(run("evidence", "inverse", tiny_gpt2, *options))
    assert found == evidence.inverse(model, n=9, kept=[4, 50], seed=2).to_dict()


def test_hidden_states_are_inverted_where_there_is_a_text(run, tiny_gpt2, text):
    found = as_json(run("evidence", "inverse", tiny_gpt2, "--text", text, "-n", 12, "--json"))
    assert found["settings"]["n"] == {"normal": 12, "values": 12, "states": 12}


def test_concepts(run, tiny_gpt2, model):
    where = ("evidence", "concepts", tiny_gpt2, "#280", "#285")
    options = ("--heads", "--centred", "-k", 2, "--draws", 30, "--json")
    expected = evidence.concept(model, ["#280", "#285"], heads=True, centred=True, k=2, draws=30)
    assert as_json(run(*where, *options)) == expected.to_dict()


@pytest.mark.parametrize("name", ["states", "logits"])
def test_overlaps(run, tiny_gpt2, model, text, name):
    options = ("--text", text, "-k", 20, "-m", 2, "--per-text", 2, "--json")
    found = as_json(run("evidence", name, tiny_gpt2, *options))
    expected = getattr(evidence, name)(model, Text.read(text), k=20, m=2, per_text=2)
    assert found == expected.to_dict()


def test_trust_is_graded_and_shown_with_the_heads(run, tiny_gpt2, tiny_llama, model, text):
    before = run("heads", tiny_gpt2, "--layer", 0, "--circuit", "vo")
    assert "trust" not in before.stdout
    found = as_json(run("evidence", "trust", tiny_gpt2, "--text", text, "--json"))
    expected = evidence.trust(model, Text.read(text))
    assert found == expected.to_dict()
    after = run("heads", tiny_gpt2, "--layer", 0, "--circuit", "vo").stdout
    shown = [line.split()[3] for line in after.splitlines() if re.match(r" +0 +\d+ +vo ", line)]
    grades = [h.grade for h in expected.heads if h.layer == 0 and h.circuit == "vo"]
    assert shown == grades
    assert Text.read(text).digest in after
    one = run("heads", tiny_gpt2, "--layer", 0, "--head", 1, "-k", 2).stdout
    assert f"W_VO {grades[1]}" in one
    assert "trust" not in run("heads", tiny_llama, "--layer", 0, "--circuit", "vo").stdout
    other = run("heads", tiny_gpt2, "--layer", 0, "--circuit", "vo", "--inverse", "pinv")
    assert "trust" not in other.stdout


def test_csv_has_a_row_a_layer_and_part(run, tiny_gpt2, text):
    found = run("evidence", "states", tiny_gpt2, "--text", text, "-k", 5, "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert len(rows) == 3 * 4
    assert all(
        float(r["aligned_low"]) <= float(r["aligned"]) <= float(r["aligned_high"]) for r in rows
    )


COMMANDS = {
    "pairs": ("--pairs", 10),
    "inverse": ("-n", 5),
    "concepts": ("#280", "--draws", 20),
    "states": ("--text", "{text}"),
    "logits": ("--text", "{text}"),
    "trust": ("--text", "{text}"),
}


def test_every_experiment_but_the_choice_of_readings_has_a_figure():
    assert {*COMMANDS, "readings"} == set(EXPERIMENTS)


@pytest.mark.parametrize("name", COMMANDS)
def test_tables_and_figures(run, tiny_gpt2, text, tmp_path, name):
    pytest.importorskip("matplotlib")
    figure = tmp_path / f"{name}.svg"
    options = [text if x == "{text}" else x for x in COMMANDS[name]]
    found = run("evidence", name, tiny_gpt2, *options, "--plot", figure, COLUMNS="100")
    assert found.exit_code == 0, found.output
    assert figure.read_text(encoding="utf8").lstrip().startswith("<?xml")
    assert "weights" in found.stdout and max(map(len, found.stdout.splitlines())) <= 100


def test_a_figure_that_cannot_be_written_is_refused_first(run, tiny_gpt2, tmp_path):
    for path in ("x.gif", tmp_path / "none" / "x.svg"):
        found = run("evidence", "pairs", tiny_gpt2, "--plot", path)
        assert found.exit_code == 1 and found.stdout == "" and len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_has_examples_that_parse(run, name):
    shown = run("evidence", name, "--help", COLUMNS="100").stdout
    examples = re.findall(r"^\s+embspace evidence (.+)$", shown, flags=re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        first, *arguments = shlex.split(example)
        command = group.get_command(click.Context(group), first)  # type: ignore[attr-defined]
        assert first == name and command is not None
        arguments = [a.replace("pairs.svg", "/tmp/pairs.svg") for a in arguments]
        command.make_context(first, arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("pairs", "--layer", 9), 1, "layer 9"),
        (("concepts", "unheardof"), 1, "not one token"),
        (("states", "--text", "/nowhere"), 1, "no text"),
        (("trust", "--text", "/nowhere"), 1, "no text"),
        (("concepts",), 2, "WORDS"),
        (("pairs", "--pairs", 1), 2, "--pairs"),
    ],
    ids=str,
)
def test_bad_input_is_one_clear_line(run, tiny_gpt2, arguments, code, message):
    name, *options = arguments
    found = run("evidence", name, tiny_gpt2, *options)
    assert found.exit_code == code and message in found.stderr and found.stdout == ""
