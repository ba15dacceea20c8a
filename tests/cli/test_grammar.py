"""One grammar: MODEL first and optional, then what to look at; old spellings still work."""

import json

import click
import pytest
from embspace_cli.places import snapshot
from embspace_cli.ranges import numbers

import embspace


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-5,8", [0, 1, 2, 3, 4, 5, 8]),
        ("3", [3]),
        (" 2 - 4 , 1", [2, 3, 4, 1]),
        ("3:6", [3, 4, 5]),  # as before: its end left out
        (("0-1", "5"), [0, 1, 5]),  # an option given twice
        (None, None),
        ((), None),
    ],
)
def test_ranges_hold_both_ends(text, expected):
    option = click.Option(["--layers"])
    assert numbers(click.Context(click.Command("x")), option, text) == expected


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "5-3", "3:3", "1--2", "0-9999999999", "1.5"])
def test_what_is_no_range_is_wrong_usage(run, text):
    found = run("lens", "The cats", "--layers", text)
    assert found.exit_code == 2 and ("0-5,8" in found.stderr or "more than" in found.stderr)


@pytest.mark.parametrize(
    "place", [("2.1",), ("2x1",), ("L2H1",), ("l2h1",), ("2", "1"), ("2", "--head", 1)], ids=str
)
def test_a_head_is_named_in_any_of_the_usual_ways(run, tiny_gpt2, place):
    expected = run("heads", tiny_gpt2, "--layer", 2, "--head", 1, "-k", 2, "--json").stdout
    found = run("heads", tiny_gpt2, *place, "-k", 2, "--json")
    assert found.exit_code == 0, found.stderr
    assert found.stdout == expected and len(json.loads(expected)["heads"]) == 2


def test_a_layer_alone_reads_all_its_heads(run, tiny_gpt2):
    expected = run("heads", tiny_gpt2, "--layer", 1, "-k", 1, "--json").stdout
    assert run("heads", tiny_gpt2, 1, "-k", 1, "--json").stdout == expected
    assert {each["layer"] for each in json.loads(expected)["heads"]} == {1}


def test_a_place_without_a_model_is_one_of_the_sample(run):
    found, expected = run("heads", "1.0", "--json"), run("heads", "sample-gpt2", "1.0", "--json")
    assert found.exit_code == 0 and found.stdout == expected.stdout


def test_neurons_and_vectors_are_named_alike(run, tiny_gpt2):
    for command, option, more in (("ff", "--neuron", ()), ("vectors", "--head", ("--group", "v"))):
        expected = run(command, tiny_gpt2, "--layer", 2, option, 3, *more, "--json")
        found = run(command, tiny_gpt2, "2.3", *more, "--json")
        assert found.exit_code == 0 and found.stdout == expected.stdout, found.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("heads", "sample-gpt2", "Paris"), "as in 3, 3.1, L3H1 or 3 1"),
        (("heads", "sample-gpt2", 1, 2, 3), "no place in a model"),
        (("heads", "sample-gpt2", 1, "--layer", 2), "the layer is given twice"),
        (("vectors", "--group", "v"), "3.1"),
        (("lens", "sample-gpt2", "The", "capital", "of"), "put it in quotes"),
        (("lens", "The capital of", "France is"), "give MODEL first"),
        (("reproduce", "jump", "gpt2", "-m", "gpt2"), "give MODEL once"),
        (("help", "lens", "more"), "no commands of its own"),
        (("help", "lenz"), "Did you mean lens"),
    ],
    ids=str,
)
def test_wrong_usage_says_what_to_type(run, arguments, said):
    found = run(*arguments)
    assert found.exit_code == 2 and said in " ".join(found.stderr.split()), found.stderr


LENS = ("--maps", "id", "--positions", "last", "--json")


def test_a_prompt_follows_its_model(run, tiny_gpt2):
    expected = run("lens", "-m", tiny_gpt2, "The cats saw", *LENS)
    found = run("lens", tiny_gpt2, "The cats saw", *LENS)
    assert found.exit_code == 0 and found.stdout == expected.stdout and not found.stderr
    assert run("lens", "The cats saw", "-m", tiny_gpt2, *LENS).stdout == expected.stdout


def test_a_single_argument_is_a_model_or_a_prompt_and_it_is_said_which(run, tiny_gpt2):
    alone = run("lens", tiny_gpt2, *LENS)
    assert alone.exit_code == 0 and "is read as MODEL" in alone.stderr
    word = run("lens", "Stockholm", *LENS)
    assert word.exit_code == 0 and "is read as a prompt for sample-gpt2" in word.stderr
    assert word.stdout == run("lens", "sample-gpt2", "Stockholm", *LENS).stdout
    assert run("lens", "Two words", *LENS).stderr == ""


def test_a_model_in_the_hubs_cache_is_a_model(run, monkeypatch, tmp_path):
    import huggingface_hub

    def lookup(repo, file):
        return str(tmp_path / file) if repo == "owner/name" else None

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lookup)
    opened = []
    monkeypatch.setattr(embspace, "load", lambda name, **_: opened.append(name), raising=False)
    assert snapshot("owner/name") == tmp_path and snapshot("two words") is None
    run("lens", "owner/name")
    assert opened == ["owner/name"]
    assert "no WORD given" in run("token", "owner/name").stderr


OLD = (
    ("lens", "--map", "id"),
    ("lens", "--layers", "0,1:3"),
    ("exit", "--map", "x.maps"),
    ("exit", "--rows", "8"),
    ("alternate", "--map", "x.maps"),
    ("alternate", "--rows", "8"),
    ("submodules", "--rows", "8"),
    ("submodules", "-l", "0", "-l", "2"),
    ("diff", "--rows", "8"),
    ("stitch", "--data", "sample", "--keep", "0,2-5"),
    ("finetune", "--data", "sample", "--out", "x", "--keep", "end"),
    ("evidence", "inverse", "--keep", "10", "--keep", "20"),
    ("evidence", "pairs", "--pairs", "10"),
    ("reproduce", "jump", "--model", "sample-gpt2"),
    ("reproduce", "embedding", "-m", "sample-gpt2"),
    ("fit", "--sentences", "0:10"),
)


@pytest.mark.parametrize("arguments", OLD, ids=" ".join)
def test_old_spellings_are_taken(arguments):
    from embspace_cli.main import cli

    context = click.Context(cli)
    command, rest = cli, list(arguments)
    while isinstance(command, click.Group):
        found = command.get_command(context, rest.pop(0))
        assert found is not None
        command = found
    command.make_context("x", rest, parent=context)


@pytest.mark.parametrize("words", [("lens",), ("evidence", "trust"), ()], ids=str)
def test_help_is_a_word_too(run, words):
    found, expected = run("help", *words), run(*words, "--help")
    assert found.exit_code == 0 and found.stdout == expected.stdout


def test_version_is_a_word_too(run):
    assert run("version").stdout == run("--version").stdout
