"""A place that one process writes into: whose it is, by which name, and when it is free again."""

import signal
import subprocess
import sys

import pytest

from embspace.cache import alone
from embspace.errors import EmbspaceError

HOLD = """
import sys, time
from pathlib import Path
from embspace.cache import alone
with alone(Path(sys.argv[1])):
    print("has it", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has the place `out`, linked to by `link`."""
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    command = [sys.executable, "-c", HOLD, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "has it\n"
        yield child
        child.kill()


@pytest.mark.parametrize("name", ["out", "link/out", "link/link/out"])
def test_a_place_is_refused_by_any_of_its_names(holder, tmp_path, name):
    taken = pytest.raises(EmbspaceError, match="another run is writing")
    with taken, alone(tmp_path / name):
        pytest.fail("two have it")
    with alone(tmp_path / "another"):
        pass


def test_a_killed_process_leaves_its_place_to_others(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with alone(tmp_path / "out"):
        pass


def test_a_place_that_cannot_be_is_told_in_a_sentence(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for name in ("a/out", "x\0y"):
        with pytest.raises(EmbspaceError, match="cannot be written"), alone(tmp_path / name):
            pytest.fail("there is no such place")


def test_without_a_cache_to_write_to_there_is_no_lock(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "file"))
    with alone(tmp_path / "out"), alone(tmp_path / "out"):
        pass
