"""Files and folders that are written: whole, and never in the place of what is no file."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from embspace.between.classifier_folder import save_state as save_training
from embspace.cache import replacing, replacing_folder, require_file, write_atomically
from embspace.errors import EmbspaceError
from embspace.maps.checkpointing import save_state
from embspace.maps.maps import Maps
from embspace.show.figures import drawn, require_plot


@pytest.fixture(params=["pipe.svg", "socket.svg", "folder.svg"])
def no_file(request, tmp_path: Path) -> Iterator[Path]:
    """What is there already and is no regular file."""
    path = tmp_path / request.param
    with socket.socket(socket.AF_UNIX) as plug:
        if path.stem == "pipe":
            os.mkfifo(path)
        elif path.stem == "socket":
            plug.bind(str(path))
        else:
            path.mkdir()
        yield path


def _draw(path: Path) -> None:
    with drawn(path, 1, 1):
        pass


def _replace(path: Path) -> None:
    with replacing(path) as made:
        made.write_text("x")


WRITERS = {
    "text": lambda path: write_atomically(path, "x"),
    "any": _replace,
    "maps": lambda path: Maps({}, (), {}).save(path),
    "state of a fit": lambda path: save_state(path, {}, {}, "identity"),
    "state of a training": lambda path: save_training(path, {"a": torch.zeros(1)}, {}),
    "figure": _draw,
    "figure, before the work": require_plot,
    "before the work": require_file,
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_what_is_no_file_stays_what_it_is(writer, no_file: Path):
    before = no_file.lstat()
    with pytest.raises(EmbspaceError, match="give the name of a file"):
        writer(no_file)
    assert os.path.samestat(before, no_file.lstat()) and before.st_mode == no_file.lstat().st_mode


def test_a_folder_does_not_take_the_place_of_anything_else(tmp_path: Path):
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_text("kept")
    for path in (pipe, file):
        with pytest.raises(EmbspaceError, match="is no folder"), replacing_folder(path):
            pytest.fail("begun")
    assert pipe.is_fifo() and file.read_text() == "kept"
    with replacing_folder(tmp_path / "new") as made:
        (made / "a").write_text("x")
    assert (tmp_path / "new" / "a").read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "new", "pipe"]


@pytest.mark.parametrize("option", ["--csv", "--plot", "--html", "--out"])
def test_commands_refuse_it_before_a_model_is_opened(run, no_file: Path, monkeypatch, option):
    import embspace

    monkeypatch.setattr(embspace, "load", lambda *_, **__: pytest.fail("opened"), raising=False)
    command = ("fit", "--overwrite") if option == "--out" else ("lens", "The cats")
    found = run(*command, option, no_file)
    assert found.exit_code == 1 and "give the name of a file" in found.stderr, found.stderr
