"""MODEL.maps, as `fit` names it, is found in the working folder, and said to be used."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("\n".join(f"The cats saw dog {n} in Rome" for n in range(90)))
    return path


@pytest.fixture
def fitted(run, tiny_gpt2, in_folder, text) -> Path:
    """Maps to the last state, where `fit` leaves them by itself."""
    assert run("fit", tiny_gpt2, "--text", text).exit_code == 0
    return in_folder / f"{tiny_gpt2.name}.maps"


def test_the_lens_looks_through_the_maps_that_fit_left(run, tiny_gpt2, fitted):
    look = ("lens", "The cats", "-m", tiny_gpt2, "--json")
    found = run(*look)
    assert list(json.loads(found.stdout)["grids"]) == ["id", "mat"]
    assert found.stderr.count(fitted.name) == 1
    assert found.stdout == run(*look, "--maps", "id", "--maps", fitted).stdout
    without = run(*look, "--maps", "none")
    assert list(json.loads(without.stdout)["grids"]) == ["id"] and fitted.name not in without.stderr


def test_scores_and_exits_are_those_of_the_maps_that_fit_left(run, tiny_gpt2, fitted, text):
    for command in ("score", "exit"):
        where = (command, tiny_gpt2, "--text", text, "--json")
        found, named = run(*where), run(*where, "--maps", fitted)
        assert found.exit_code == 0, found.stderr
        assert found.stdout == named.stdout
        assert fitted.name in found.stderr and fitted.name not in named.stderr
        assert run(*where, "--maps", "none").stdout != found.stdout


def test_blocks_are_jumped_over_by_maps_of_all_pairs_only(run, tiny_gpt2, fitted, text):
    where = ("alternate", tiny_gpt2, "--text", text, "--schedule", "single", "--json")
    found = run(*where)
    assert found.exit_code == 0 and "no maps of all pairs" in found.stderr
    assert run("fit", tiny_gpt2, "--text", text, "--pairs", "all", "--overwrite").exit_code == 0
    found = run(*where)
    assert f"through {fitted.name}" in found.stderr
    assert found.stdout == run(*where, "--maps", fitted).stdout


def test_maps_of_another_model_or_of_nothing_are_left_aside(run, tiny_gpt2, tiny_llama, fitted):
    other = fitted.with_name(f"{tiny_llama.name}.maps")
    for content, said in ((fitted.read_bytes(), "were fitted on"), (b"?", "is not used")):
        other.write_bytes(content)
        found = run("lens", "The cats", "-m", tiny_llama, "--json")
        assert found.exit_code == 0 and said in found.stderr
        assert list(json.loads(found.stdout)["grids"]) == ["id"]
