"""`embspace align` prints what `embspace.align` returns, and refuses before it works."""

import csv
import io
import json

import pytest

import embspace


@pytest.fixture(scope="module")
def models(tiny_gpt2, tiny_llama):
    return embspace.load(tiny_gpt2), embspace.load(tiny_llama)


def test_json_is_the_result(run, tiny_gpt2, tiny_llama, models):
    found = run("align", tiny_gpt2, tiny_llama, "--seed", 3, "--filter", "ascii", "--json")
    expected = embspace.align(*models, seed=3, filters="ascii")
    assert found.exit_code == 0
    assert json.loads(found.stdout) == expected.to_dict()


def test_groups_and_norms_are_passed_on(run, tiny_gpt2, models):
    where = ("align", tiny_gpt2, tiny_gpt2, "--groups", "K, W_O", "--norm", "folded")
    found = json.loads(run(*where, "--json").stdout)
    assert list(found["groups"]) == ["K", "W_O"]
    expected = embspace.align(models[0], models[0], groups=["K", "W_O"], norm="folded")
    assert found == expected.to_dict()


def test_csv_has_a_row_a_pair_of_layers(run, tiny_gpt2, tiny_llama, tmp_path):
    path = tmp_path / "scores.csv"
    found = run("align", tiny_gpt2, tiny_llama, "--groups", "V", "--csv", path)
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf8"))))
    assert len(rows) == 3 * 2 and sum(row["matched"] == "True" for row in rows) == 2
    assert found.stdout == "" and "wrote" in found.stderr


def test_the_samples_are_compared_where_no_model_is_given(run):
    found = run("align", "--groups", "W_O")
    assert found.exit_code == 0 and "sample-bert-a ↔ B sample-bert-b" in found.stdout
    assert "W_O, vocabulary space" in found.stdout and "W_O, feature space" in found.stdout


def test_a_figure_is_drawn_beside_the_table(run, tiny_gpt2, tiny_llama, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "panels.svg"
    found = run("align", tiny_gpt2, tiny_llama, "--groups", "V", "--plot", path)
    assert found.exit_code == 0 and path.read_text(encoding="utf8").startswith("<?xml")
    assert "shared" not in found.stderr and f"wrote {path}" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sample-gpt2",), "two models"),
        (("sample-gpt2", " "), "two models"),
        (("--groups", "K,,V"), "groups like"),
        (("--groups", ""), "groups like"),
        (("--json", "--csv", "-"), "not both"),
        (("--seed", "-1"), "seed"),
    ],
    ids=str,
)
def test_wrong_usage_leaves_with_2(run, arguments, words):
    found = run("align", *arguments)
    assert found.exit_code == 2 and words in found.stderr and found.stdout == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--groups", "K"), "two sets"),
        (("--groups", "W_X"), "unknown group"),
        (("--filter", "re:nothing-of-the-kind"), "no token"),
        (("--plot", "x.txt"), "end its name in .png"),
        (("--norm", "folded", "--device", "tpu"), "not a device"),
    ],
    ids=str,
)
def test_what_cannot_be_aligned_is_one_line_and_leaves_with_1(
    run, tiny_gpt2, tiny_llama, in_folder, options, words
):
    found = run("align", tiny_gpt2, tiny_llama, *options)
    assert found.exit_code == 1 and found.stdout == ""
    assert words in found.stderr and found.stderr.count("\n") == 1
    assert list(in_folder.iterdir()) == []


def test_a_second_model_that_is_not_there_is_named(run, tiny_gpt2, tmp_path):
    found = run("align", tiny_gpt2, tmp_path / "none")
    assert found.exit_code == 1 and "none" in found.stderr


def test_states_are_compared_on_a_text(run, tiny_gpt2, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"The cats saw {n} dogs in Paris" for n in range(40)), "utf8")
    where = ("align", tiny_gpt2, "sample-bert-a", "--states", "--text", text, "--words", 200)
    found = run(*where)
    assert found.exit_code == 0
    assert "debiased linear CKA" in found.stdout and "n = " in found.stdout
    assert set(json.loads(run(*where, "--json").stdout)["states"]) >= {"cka"}


@pytest.mark.parametrize(
    "arguments",
    [("--text", "x"), ("--words", 3), ("--states", "--groups", "K"), ("--states", "--words", 0)],
    ids=str,
)
def test_options_of_states_go_with_states(run, arguments):
    assert run("align", *arguments).exit_code == 2
