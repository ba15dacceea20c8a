"""Long work that is interrupted keeps what it did, says where, and goes on to the same result."""

import json
import os
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from embspace.maps.maps import Maps


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "t.txt"
    path.write_text("\n".join(f"The cats saw dog {n} in Rome" for n in range(60)))
    return path


def stopped(process: Any, number: int, *arguments: object) -> tuple[int, str]:
    """Exit code and stderr of a fit that got a signal once it had read something."""
    running = process(*arguments)
    said = []
    for line in running.stderr:
        said.append(line)
        if "tokens read" in line:
            running.send_signal(number)
            break
    said += running.stderr.readlines()
    running.stdout.close()
    running.stderr.close()
    return running.wait(), "".join(said)


@pytest.fixture
def slow(tmp_path: Path) -> dict[str, str]:
    """Surroundings in which batches are small, take a while, and are reported all the time."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'embspace_cli.fit':\n"
        "            sys.meta_path.remove(self)\n"
        "            from embspace.maps import fit as fitting\n"
        "            from embspace_cli import followed\n"
        "            followed.FIRST_S = followed.EVERY_S = 0.05\n"
        "            from embspace.weights.run_settings import AS_USUAL\n"
        "            object.__setattr__(AS_USUAL, 'batch_tokens', 40)\n"
        "            true = fitting.outlying\n"
        "            fitting.outlying = lambda states: (time.sleep(0.05), true(states))[1]\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    return {"PYTHONPATH": str(tmp_path / "slow")}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_fit_says_where_it_left_off_and_the_command_it_names_ends_it_alike(
    process, run, tiny_gpt2, in_folder, text, slow, monkeypatch, number, code: int
):
    for name, value in slow.items():
        monkeypatch.setenv(name, value)
    arguments = ("fit", tiny_gpt2, "--text", text, "--positions", "all", "--no-check")
    found, said = stopped(process, number, *arguments, "--out", "a b.maps")
    assert found == code, said
    assert "kept in a b.maps.state" in said and Path("a b.maps.state").is_file()
    command = shlex.split(said.strip().splitlines()[-1])
    assert command[0] == "embspace" and command[-1] == "--resume"
    ended = process(*command[1:])
    wrote, following = ended.communicate()[1].splitlines()[-2:]
    assert wrote == "wrote a b.maps"
    assert shlex.split(following)[1:] == ["embspace", "score", str(tiny_gpt2), "--maps", "a b.maps"]
    whole = process(*arguments, "--out", "whole.maps")
    whole.communicate()
    assert whole.returncode == 0
    assert Path("a b.maps").read_bytes() == Path("whole.maps").read_bytes()
    assert not Path("a b.maps.state").exists()


def test_a_finetuning_says_where_it_left_off_and_the_command_it_names_ends_it_alike(
    process, tiny_gpt2, in_folder
):
    words = ("good", "bad")
    lines = [f"{words[n % 2]} day no {n},{words[n % 2]}" for n in range(600)]
    Path("texts.csv").write_text("\n".join(["text,label", *lines]), encoding="utf8")
    arguments = ("finetune", tiny_gpt2, "--data", "texts.csv", "--epochs", 2, "--batch", 4)
    running = process(*arguments, "--out", "cut")
    state = Path("cut.training.safetensors")
    while not state.is_file():
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    said = running.communicate()[1]
    assert running.returncode == 143 and f"kept in {state}" in said, said
    command = shlex.split(said.strip().splitlines()[-1])
    assert command[0] == "embspace" and command[-1] == "--resume" and not Path("cut").exists()
    for words in (command[1:], (*arguments, "--out", "whole")):
        ended = process(*words)
        assert "wrote" in ended.communicate()[1] and ended.returncode == 0
    one, other = (Path(folder, "model.safetensors").read_bytes() for folder in ("cut", "whole"))
    assert one == other and not state.exists()


def test_resuming_what_is_finished_is_no_error(run, tiny_gpt2, in_folder, text):
    arguments = ("fit", tiny_gpt2, "--text", text, "--out", "m.maps")
    first = run(*arguments, "--json")
    written = Path("m.maps").read_bytes()
    again = run(*arguments, "--json", "--resume")
    assert again.exit_code == 0 and "m.maps is finished" in again.stderr
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert Path("m.maps").read_bytes() == written
    assert run(*arguments).exit_code == 1  # without --resume it is a file in the way


def test_a_state_left_after_the_maps_is_not_taken_for_finished(run, tiny_gpt2, in_folder, text):
    arguments = ("fit", tiny_gpt2, "--text", text, "--out", "m.maps")
    assert run(*arguments).exit_code == 0
    Path("m.maps.state").write_bytes(b"")
    os.utime("m.maps.state", (time.time() + 60,) * 2)
    found = run(*arguments, "--resume")
    assert found.exit_code == 1 and "--overwrite" in found.stderr
    assert Path("m.maps.state").exists() and Maps.load("m.maps")
