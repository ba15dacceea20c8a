"""Help shows how a command is used, and its examples can be run."""

import re
import shlex

import click
import pytest
from embspace_cli.main import COMMANDS, cli


def help_of(run, name: str) -> str:
    return run(name, "--help", COLUMNS="100").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_parse(run, name):
    examples = re.findall(r"^\s+embspace (.+)$", help_of(run, name), flags=re.MULTILINE)
    assert examples
    for example in examples:
        command, *arguments = shlex.split(example)
        assert command == name
        context = click.Context(cli)
        found = cli.get_command(context, command)
        assert found is not None
        found.make_context(command, list(arguments), parent=context)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_its_examples(run, name):
    last = help_of(run, name).rstrip().rsplit("Examples:\n", 1)[1]
    assert all("embspace" in line for line in last.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, option.name


def test_completion_is_offered(run):
    found = run(_EMBSPACE_COMPLETE="bash_source")
    assert "complete" in found.stdout and "embspace" in found.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["embspace", "heads", "bert-seed2"], "bert-seed24"),
        (["embspace", "ff", "--filter", "wor"], "words"),
    ],
    ids=str,
)
def test_names_are_completed(run, words, expected):
    env = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    found = run(_EMBSPACE_COMPLETE="bash_complete", **env)
    assert expected in found.stdout


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_both_flags_of_help_work(run, flag):
    found = run(flag)
    assert found.exit_code == 0 and all(name in found.stdout for name in COMMANDS)
