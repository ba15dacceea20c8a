"""A reproduction that was interrupted goes on where it was, and never reads half a step."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import embspace
from embspace.errors import EmbspaceError
from embspace.evidence import kept_steps
from embspace.evidence.claims import VOID
from embspace.evidence.embedding_steps import Cast, embedding_steps
from embspace.evidence.reproduction import reproduce
from embspace.show import LOOKS

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


@pytest.fixture
def steps(model):
    """The two steps of the paper that only read weights, and those that are void."""
    return embedding_steps(Cast(model, None), quick=True)


@pytest.fixture
def run(steps, model, tmp_path):
    """Reproduce into a folder; counts how often each step was really measured."""

    def go(folder="out", changed=None, **options):
        measured = []

        def counted(step):
            def work(progress):
                measured.append(step.name)
                return (changed or {}).get(step.name, step.work)(progress)

            return replace(step, work=work)

        found = reproduce(
            "embedding",
            [counted(step) for step in steps],
            tmp_path / folder,
            models={"model": model},
            looks=LOOKS,
            **options,
        )
        return found, measured

    return go


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def interrupt(progress):
    raise KeyboardInterrupt


def test_a_run_writes_all_it_promises(run, tmp_path):
    found, measured = run()
    assert measured == ["pairs", "inverse"]
    written = set(files_of(tmp_path / "out"))
    each = {"result.json", "table.csv", "table.html", "figure.svg", "figure.png", "step.json"}
    own = {"index.html", "claims.json", "claims.csv", "reproduction.json"}
    assert written == own | {f"{step}/{file}" for step in measured for file in each}
    assert json.loads((tmp_path / "out" / "claims.json").read_text("utf8")) == found.to_dict()
    assert (tmp_path / "out" / "claims.csv").read_text("utf8") == found.to_csv()


def test_what_is_done_is_not_done_again(run, tmp_path):
    run()
    before = files_of(tmp_path / "out")
    assert run()[1] == []
    assert files_of(tmp_path / "out") == before
    assert run(fresh=True)[1] == ["pairs", "inverse"]
    assert files_of(tmp_path / "out") == before


def test_after_an_interrupt_the_result_is_that_of_an_unbroken_run(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run("broken", changed={"inverse": interrupt})
    assert not (tmp_path / "broken" / "index.html").exists()
    assert run("broken")[1] == ["inverse"]
    run("unbroken")
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "unbroken")


@pytest.mark.parametrize("file", ["result.json", "table.html", "figure.png", "step.json"])
def test_a_damaged_step_is_measured_again(run, tmp_path, file):
    run()
    before = files_of(tmp_path / "out")
    path = tmp_path / "out" / "pairs" / file
    path.write_bytes(path.read_bytes()[:-5])
    assert run()[1] == ["pairs"]
    assert files_of(tmp_path / "out") == before


def test_a_step_with_a_missing_file_is_measured_again(run, tmp_path):
    run()
    (tmp_path / "out" / "inverse" / "figure.svg").unlink()
    assert run()[1] == ["inverse"]


def test_a_kill_while_a_step_is_written_leaves_nothing_half(run, tmp_path, monkeypatch):
    class KilledError(BaseException):
        pass

    def killed(*paths):
        raise KilledError

    monkeypatch.setattr(kept_steps.os, "replace", killed)
    monkeypatch.setattr(kept_steps.shutil, "rmtree", lambda *a, **k: None)  # nor is it cleaned up
    keeper = tmp_path / "out"
    keeper.mkdir()
    (keeper / kept_steps.MARKER).write_text('{"paper": "embedding"}')
    monkeypatch.setattr(kept_steps, "write_atomically", lambda *a: None)
    with pytest.raises(KilledError):
        run()
    assert not (keeper / "pairs").exists()
    assert any(path.name.startswith(kept_steps.TEMPORARY) for path in keeper.iterdir())
    monkeypatch.undo()
    assert run()[1] == ["pairs", "inverse"]
    assert not any(path.name.startswith(".") for path in keeper.iterdir())


def test_other_settings_replace_a_step(run, steps, tmp_path):
    run()
    steps[0] = replace(steps[0], decided_by=steps[0].decided_by | {"seed": 1})
    assert run()[1] == ["pairs"]


def test_folders_with_other_things_are_left_alone(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "diary.txt").write_text("dear diary")
    with pytest.raises(EmbspaceError, match="holds other things"):
        run()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["diary.txt"]


def test_another_paper_does_not_mix(run, tmp_path):
    run()
    with pytest.raises(EmbspaceError, match="reproduction of 'embedding'"):
        reproduce("jump", [], tmp_path / "out", models={}, looks=LOOKS)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_made_is_named(run, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(EmbspaceError, match="cannot be made"):
        run()


def test_a_step_that_the_model_refuses_is_told_with_its_reason(run):
    def refuse(progress):
        raise EmbspaceError("this model has no keys.")

    found, _ = run(changed={"pairs": refuse})
    void = {v.claim.step: v.reason for v in found.verdicts if v.verdict == VOID}
    assert void["pairs"] == "this model has no keys."
    assert run()[1] == ["pairs"]


def test_a_disk_that_is_full_is_no_reason_but_an_error(run, monkeypatch):
    def full(*a, **k):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_steps.os, "fsync", full)
    with pytest.raises(EmbspaceError, match="No space left"):
        run()


def test_a_second_run_into_the_same_folder_is_refused_while_the_first_one_works(
    run, tmp_path, monkeypatch
):
    def second(progress):
        with pytest.raises(EmbspaceError, match="another run is writing"):
            run()
        run("other")  # another folder is free
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(changed={"inverse": second})
    assert run()[1] == ["inverse"]  # the lock went with the interrupted run
    monkeypatch.setenv("EMBSPACE_CACHE", os.devnull)  # no cache, no lock, no hindrance
    assert run("third")[1] == ["pairs", "inverse"]


def test_experiments_stay_callable_whatever_was_imported_first():
    import subprocess
    import sys

    code = (
        "import embspace.evidence.claims, embspace.evidence.grades\n"
        "import embspace\n"
        "names = ('concept', 'inverse', 'logits', 'pairs', 'states', 'trust')\n"
        "assert all(callable(getattr(embspace.evidence, name)) for name in names)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
