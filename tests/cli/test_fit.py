"""`embspace fit` from the command line: maps that are trained on, and one run a file."""

import json
from pathlib import Path

import pytest

from embspace.cache import alone
from embspace.maps.maps import Maps


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("\n".join(f"The cats saw dog {n} in Rome" for n in range(60)))
    return path


def test_refined_maps_are_written_shown_and_read_again(run, tiny_gpt2, in_folder, text):
    arguments = ("fit", tiny_gpt2, "--text", text, "--kind", "refined", "--rows", "30")
    found = run(*arguments, "--out", "r.maps", "--seed", "3")
    assert found.exit_code == 0, found.stderr
    assert "KL refined" in found.stdout and "pooled" not in found.stdout
    assert Maps.load("r.maps").kind == "refined"
    assert [path.name for path in in_folder.glob("r.maps*")] == ["r.maps"]
    again = json.loads(run(*arguments, "--out", "s.maps", "--seed", "3", "--json").stdout)
    assert again["about"]["kl"] == Maps.load("r.maps").about["kl"]
    grids = run("lens", "The cats", "-m", tiny_gpt2, "--map", "r.maps", "--json")
    assert list(json.loads(grids.stdout)["grids"]) == ["refined"]


@pytest.mark.parametrize("option", [("--pairs", "all"), ("--parts", "submodules")])
def test_what_is_never_refined_is_a_wrong_use(run, tiny_gpt2, in_folder, option):
    found = run("fit", tiny_gpt2, "--kind", "refined", *option)
    assert found.exit_code == 2 and option[0] in found.stderr
    assert not list(in_folder.iterdir())


def test_more_lines_than_maps_remember_are_refused_before_they_are_fitted(
    run, tiny_gpt2, in_folder, text, monkeypatch
):
    monkeypatch.setattr("embspace.maps.refine.MOST_MARKS", 20)
    monkeypatch.setattr("embspace.maps.fit.fit", lambda *a, **b: 1 / 0)
    found = run("fit", tiny_gpt2, "--text", text, "--kind", "refined", "--out", "r.maps")
    assert found.exit_code == 1 and "20 at most" in found.stderr


def test_a_second_run_into_one_file_is_refused_from_its_start(
    run, tiny_gpt2, in_folder, text, monkeypatch
):
    monkeypatch.setattr("embspace.maps.fit.fit", lambda *a, **b: 1 / 0)
    with alone(Path("m.maps")):  # also while the other one still reads its model, or refines
        found = run("fit", tiny_gpt2, "--text", text, "--out", "m.maps")
    assert found.exit_code == 1 and "another run is writing m.maps" in found.stderr
    assert not list(in_folder.glob("m.maps*"))


def test_what_a_run_left_is_removed_whatever_its_file_is_called(run, tiny_gpt2, in_folder, text):
    for name in ("a[1].maps", "b.maps"):
        (in_folder / f"{name}.state").touch()
        assert run("fit", tiny_gpt2, "--text", text, "--out", name).exit_code == 0
    assert sorted(path.name for path in in_folder.glob("*.maps*")) == ["a[1].maps", "b.maps"]
