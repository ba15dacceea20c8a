"""`embspace lens` from the command line."""

import json

import pytest


def test_a_prompt_is_a_grid_and_the_same_numbers_as_json(run, tiny_gpt2):
    text = run("lens", "The cats saw", "-m", tiny_gpt2, "--map", "id", COLUMNS="80")
    assert text.exit_code == 0 and "settled" in text.stdout and "layer" in text.stdout
    data = json.loads(run("lens", "The cats saw", "-m", tiny_gpt2, "--map", "id", "--json").stdout)
    grid = data["grids"]["id"]
    assert grid["layers"] == ["0", "1", "2", "3"]
    assert len(grid["tokens"][0]) == len(data["positions"]) == len(data["ids"])


def test_one_position_is_a_table_of_its_top_tokens(run, tiny_gpt2):
    found = run("lens", "The cats saw", "-m", tiny_gpt2, "--map", "id", "--positions", "last",
                "--track", "s", COLUMNS="120")  # fmt: skip
    assert found.exit_code == 0 and "entropy" in found.stdout and "answer" in found.stdout
    assert "settled at layer" in found.stdout


def test_page_and_figure_are_written_beside_csv(run, tiny_gpt2, in_folder):
    found = run("lens", "The cats", "-m", tiny_gpt2, "--map", "id", "--html", "a.html",
                "--plot", "a.svg", "--csv", "a.csv")  # fmt: skip
    assert found.exit_code == 0, found.stderr
    assert (in_folder / "a.html").read_text(encoding="utf8").startswith("<!DOCTYPE html>")
    assert "<svg" in (in_folder / "a.svg").read_text(encoding="utf8")
    assert (in_folder / "a.csv").read_text(encoding="utf8").startswith("kind,layer,position")


def test_maps_are_fitted_once_and_remembered(run, tiny_gpt2, tmp_path):
    text = tmp_path / "t.txt"
    text.write_text("\n".join(f"The cats saw dog {n} in Rome" for n in range(60)))
    arguments = ("lens", "The cats", "-m", tiny_gpt2, "--text", text, "--json")
    first, second = (run(*arguments) for _ in range(2))
    assert first.exit_code == 0, first.stderr
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert list(one["grids"]) == ["id", "mat"] and one["grids"] == two["grids"]
    assert "fitted now" in " ".join(one["notes"]) and "remembered" in " ".join(two["notes"])


def test_generated_tokens_have_a_column_each(run, tiny_gpt2):
    found = run("lens", "The cats", "-m", tiny_gpt2, "--map", "id", "--generate", "3", "--json")
    data = json.loads(found.stdout)
    new = data["ids"][-len(data["positions"]) :]
    assert [place["answer"] for place in data["positions"]] == new


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--layers", "x"), 2),
        (("--positions", "3:1"), 2),
        (("--generate", "2", "--positions", "last"), 2),
        (("--compare", "--track", "s"), 2),
        (("--compare", "--html", "x.html"), 2),
        (("--layers", "9"), 1),
        (("--positions", "77"), 1),
        (("--track", "elephants and whales"), 1),
        (("--map", "mad"), 1),
        (("--html", "no/such/folder.html"), 1),
        (("--plot", "x.txt"), 1),
    ],
    ids=str,
)
def test_mistakes_are_one_line(run, tiny_gpt2, arguments, code):
    prompt = () if "--compare" in arguments else ("The cats",)
    map_ = () if "--map" in arguments else ("--map", "id")
    found = run("lens", *prompt, "-m", tiny_gpt2, *map_, *arguments)
    assert found.exit_code == code and not found.stdout
    assert code == 2 or len(found.stderr.strip().splitlines()) == 1


def test_maps_in_the_cache_are_deleted_by_name_or_all(run, tiny_gpt2, tmp_path, monkeypatch):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "lines.txt"
    text.write_text("\n".join(f"cats and dogs number {n}" for n in range(60)), "utf8")
    for seed in "123":
        run("lens", "cats", "-m", tiny_gpt2, "--text", text, "--seed", seed)
    listed = json.loads(run("maps", "--json").stdout)["maps"]
    assert len(listed) == 3
    first, *rest = sorted(row["file"] for row in listed)
    for wrong, words in (("zz", "no file in the cache"), ("", "no file")):
        found = run("maps", "--prune", first, wrong)
        assert found.exit_code == 1 and words in found.stderr
    assert len(json.loads(run("maps", "--json").stdout)["maps"]) == 3  # all or nothing
    assert run("maps", first).exit_code == 1  # a file's path, where nothing is to be deleted
    kept = json.loads(run("maps", tmp_path / "cache" / "maps" / first, "--json").stdout)
    assert kept["about"]["kind"] == "mat" and kept["pairs"]
    assert "deleted 1 file(s)" in run("maps", "--prune", first[:12], first).stderr
    assert sorted(r["file"] for r in json.loads(run("maps", "--json").stdout)["maps"]) == rest
    assert "deleted 2 file(s)" in run("maps", "--prune").stderr


def test_without_maps_and_text_the_logit_lens_is_shown_and_how_to_get_maps(
    run, tiny_gpt2, monkeypatch
):
    import socket

    from embspace.text import sources

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, lambda *_, **__: pytest.fail("a connection was tried"))
    monkeypatch.setattr(sources, "_from_hub", lambda *_: pytest.fail("the Hub was asked"))
    found = run("lens", "The cats saw", "-m", tiny_gpt2, "--json")
    assert found.exit_code == 0, found.stderr
    data = json.loads(found.stdout)
    assert list(data["grids"]) == ["id"]
    said = " ".join(data["notes"])
    assert f"embspace fit {tiny_gpt2} --text FILE" in said and "--text self" in said
    assert "logit lens alone" in run("lens", "The cats saw", "-m", tiny_gpt2, COLUMNS="80").stdout


def test_a_sample_is_shown_through_a_map_as_well(run):
    found = json.loads(run("lens", "The port is", "--positions", "last", "--json").stdout)
    assert list(found["grids"]) == ["id", "mat"]
