"""`embspace reproduce`: what it prints is what it writes, and again what was kept."""

import json
import re
import shlex

import click
import pytest
from embspace_cli.reproduce import PAPERS
from embspace_cli.reproduce import command as group

pytest.importorskip("matplotlib")


@pytest.fixture
def reproduce(run, tiny_gpt2, in_folder):
    def go(*options):
        where = ("reproduce", "embedding", "--model", tiny_gpt2, "--weights-only", "--quick")
        return run(*where, "--out", "out", *options)

    return go


def test_it_prints_what_it_writes(reproduce, in_folder):
    found = reproduce("--json")
    assert found.exit_code == 0, found.output
    written = json.loads((in_folder / "out" / "claims.json").read_text("utf8"))
    assert json.loads(found.stdout) == written
    assert written["quick"] and {claim["verdict"] for claim in written["claims"]} > {"holds"}
    assert "2 of 8" in found.stderr and "measured" in found.stderr and "index.html" in found.stderr


def test_steps_are_kept_unless_all_is_to_be_fresh(reproduce, in_folder):
    first = reproduce()
    assert first.exit_code == 0 and "claim" in first.stdout and "does not hold" in first.stdout
    again, fresh = reproduce("--resume"), reproduce("--fresh")
    assert again.stdout == first.stdout == fresh.stdout
    assert again.stderr.count("kept from before") == 2
    assert "kept from before" not in fresh.stderr


def test_claims_leave_as_csv_too(reproduce, in_folder):
    assert reproduce("--csv", "-").stdout == (in_folder / "out" / "claims.csv").read_text("utf8")


def test_folders_of_others_are_refused(reproduce, in_folder):
    (in_folder / "out").mkdir()
    (in_folder / "out" / "mine.txt").write_text("mine")
    found = reproduce()
    assert found.exit_code == 1 and "holds other things" in found.stderr and not found.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("jump", "--text", "a", "--text", "b", "--text", "c"),
        ("embedding", "--weights-only", "--text", "a"),
        ("embedding", "--pair", "one"),
        ("other",),
    ],
    ids=str,
)
def test_wrong_usage_is_told_before_anything_is_opened(run, in_folder, arguments):
    found = run("reproduce", *arguments)
    assert found.exit_code == 2 and found.stderr.startswith(("Usage:", "Error:"))
    assert not list(in_folder.iterdir())


@pytest.mark.parametrize("name", PAPERS)
def test_help_has_examples_that_parse_and_explains_every_option(run, name):
    text = run("reproduce", name, "--help", COLUMNS="100").stdout
    examples = re.findall(r"^\s+embspace reproduce (.+)$", text, flags=re.MULTILINE)
    command = group.get_command(click.Context(group), name)
    assert examples and command is not None
    for example in examples:
        first, *arguments = shlex.split(example)
        assert first == name
        command.make_context(first, list(arguments))
    assert all(option.help for option in command.params if isinstance(option, click.Option))
