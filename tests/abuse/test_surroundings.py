"""Full disks, caches that cannot be written, no home, no network, interrupts, odd terminals."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.cells import cell_len
from safetensors.torch import load_file, save_file

import embspace
from embspace.cache import cache_folder, unfinished, write_atomically
from embspace.errors import EmbspaceError
from embspace.maps.maps import Maps
from embspace.weights.tensors import Checkpoint

from .damage import in_one_line

REVIEWS = "\n".join(
    json.dumps({"text": f"{('the good', 'her bad')[n % 2]} cat {n} saw", "label": n % 2})
    for n in range(40)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 60 sentences, 40 labelled texts and a list of words."""
    folder = tmp_path_factory.mktemp("place")
    lines = (f"the {chr(65 + n % 26)} cat {n} saw Paris and Rome" for n in range(60))
    (folder / "lines.txt").write_text("\n".join(lines))
    young = ("deer\tfawn", "duck\tduckling", "cow\tcalf", "dog\tpuppy", "cat\tkitten", "bear\tcub")
    (folder / "pairs.tsv").write_text("\n".join(young))
    (folder / "reviews.jsonl").write_text(REVIEWS)
    (folder / "words.txt").write_text("the\nand\nof\nsaw\n")
    return folder


@pytest.fixture(scope="module")
def tuned(place: Path, tiny_gpt2: Path) -> Path:
    """The small GPT-2 made a classifier."""
    model = embspace.load(tiny_gpt2)
    embspace.finetune(model, place / "reviews.jsonl", place / "tuned", epochs=1, blocks=1)
    return place / "tuned"


Line = Callable[[Path, Path, Path], list[Any]]  # model, place, classifier -> arguments
TEXT = ("--text", "{place}/lines.txt")
LOCAL: dict[str, tuple[Any, ...]] = {
    "heads": ("{model}", "-l", 0, "-k", 2),
    "ff": ("{model}", "-l", 0, "--limit", 2),
    "token": ("{model}", "#65"),
    "vectors": ("{model}", "--group", "o", "-l", 0, "--head", 0),
    "lens": ("the cat", "-m", "{model}", *TEXT, "-k", 2),
    "align": ("{model}", "{model}", "--groups", "V"),
    "evidence": ("pairs", "{model}"),
    "stitch": (
        *("{model}", "{tuned}", "--data", "{place}/reviews.jsonl", "--texts", 8),
        *("--no-controls", "--keep", "3"),
    ),
    "finetune": (
        *("{model}", "--data", "{place}/reviews.jsonl", "--out", "{out}/made", "--epochs", 1),
        *("--blocks", 1),
    ),
    "diff": ("{model}", "{tuned}", "--words", "{place}/words.txt", "--turns", 0, "--rows", 1),
    "fit": ("{model}", *TEXT, "--out", "{out}/x.maps"),
    "score": ("{model}", *TEXT),
    "transfer": ("{model}", *TEXT, "--other", "{place}/words.txt", "--rows", 20),
    "submodules": ("{model}", *TEXT, "-l", 1, "--rows", 8),
    "exit": ("{model}", *TEXT, "--rows", 8),
    "alternate": ("{model}", *TEXT, "--rows", 8, "--schedule", "r2"),
    "relations": ("sample-gpt2", "--pairs", "{place}/pairs.tsv"),
    "maps": (),
    "check": ("{model}", "--layers", "0"),
    "models": (),
}
OTHERS = {"reproduce"}  # whose steps are the other commands'
RUNNING = (
    *("align", "diff", "lens", "fit", "score", "transfer", "submodules", "exit", "alternate"),
    *("stitch", "finetune"),
)


@pytest.fixture
def line(tiny_gpt2, place, tuned, tmp_path) -> Callable[[str], list[str]]:
    """The arguments of a command on local files only."""

    def arguments(name: str) -> list[str]:
        where = {"model": tiny_gpt2, "place": place, "tuned": tuned, "out": tmp_path}
        return [name, *(str(a).format(**where) for a in LOCAL[name])]

    return arguments


def test_every_command_has_its_line_here():
    from embspace_cli.main import COMMANDS

    assert set(COMMANDS) == {*LOCAL, *OTHERS}


@pytest.mark.parametrize("name", LOCAL)
def test_no_command_opens_a_connection_for_local_files(run, line, monkeypatch, name: str):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was tried")

    for owner, call in (
        (socket.socket, "connect"),
        (socket.socket, "connect_ex"),
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
    ):
        monkeypatch.setattr(owner, call, refuse)
    result = run(*line(name))
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("name", [name for name, given in LOCAL.items() if "{model}" in given])
def test_every_command_reads_weights_of_sixteen_bits_and_says_so(
    run, line, tiny_gpt2, copy, name: str
):
    """Of which numpy knows no numbers: all arithmetic is in float32 or better."""
    folder = copy(tiny_gpt2)
    stored = load_file(folder / "model.safetensors")
    half = {name: tensor.bfloat16() for name, tensor in stored.items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    arguments = [str(folder) if a == str(tiny_gpt2) else a for a in line(name)]
    result = run(*arguments, "--json")
    if name == "diff":  # the classifier was tuned from other weights
        return in_one_line(result)
    assert result.exit_code == 0, result.stderr
    assert '"bfloat16"' in result.stdout and '"float32"' in result.stdout


@pytest.mark.parametrize("name", RUNNING)
def test_an_interrupt_anywhere_is_130_and_leaves_nothing_behind(
    run, line, monkeypatch, tmp_path, name: str
):
    read, n_read = Checkpoint.tensor, []

    def interrupted(self: Checkpoint, tensor: str) -> Any:
        n_read.append(tensor)
        if len(n_read) > 40:
            raise KeyboardInterrupt
        return read(self, tensor)

    monkeypatch.setattr(Checkpoint, "tensor", interrupted)
    result = run(*line(name), "--no-check")
    if len(n_read) > 40:
        assert result.exit_code == 130 and "Traceback" not in result.stderr, result.stderr
        assert result.stdout == "" and list(tmp_path.iterdir()) == []
    else:
        assert result.exit_code == 0


@contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def short(result: Result, told: str) -> None:
    """The run failed with one last line that says what could not be written."""
    assert result.exit_code == 1 and "Traceback" not in result.stderr, result.output
    (said,) = [x for x in result.stderr.splitlines() if x.startswith("error: ")]
    assert told in said and "unexpected" not in said, said


def test_a_full_disk_is_one_line_and_leaves_no_half_file(run, line, tmp_path, monkeypatch):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    with full_disk(1000):
        short(run(*line("fit")), "x.maps")
        short(run(*line("finetune")), "made")
        short(run(*line("heads"), "--csv", tmp_path / "x.csv", "-k", 400), "x.csv")
        result = run(*line("score"))  # a cache that cannot be written is no hindrance
    assert result.exit_code == 0, result.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(
        path.parent.name in ("certificates", "readings", "seconds", "locks") for path in left
    ), left


def test_a_full_device_is_one_line(forked, tiny_gpt2):
    full = os.open("/dev/full", os.O_WRONLY)
    code, errors = forked(["heads", tiny_gpt2, "-l", 0, "--json"], stdout=full).wait()
    os.close(full)
    assert code == 1 and len(errors.splitlines()) == 1 and "No space left" in errors


@pytest.mark.parametrize("cache", ["/dev/null", "/proc/self/nothing", "file"])
def test_a_cache_that_cannot_be_written_is_no_hindrance(run, line, tmp_path, monkeypatch, cache):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "file") if cache == "file" else cache)
    for name in ("heads", "fit", "maps", "models"):
        result = run(*line(name))
        assert result.exit_code == 0, result.stderr


def test_without_a_home_there_is_no_cache_and_no_folder_called_tilde(
    run, line, tmp_path, monkeypatch
):
    import pwd

    def nobody(*_: Any) -> None:
        raise KeyError("no such user")

    for name in ("EMBSPACE_CACHE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("heads", "fit"):
        result = run(*line(name))
        assert result.exit_code == 0, result.stderr
    assert list((tmp_path / "here").iterdir()) == []
    with pytest.raises(EmbspaceError, match="cannot be written"):
        write_atomically(cache_folder("x") / "y.json", "{}", make_folder=True)


def test_what_a_killed_process_left_is_removed_by_the_next_writer_and_no_other_file(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine = unfinished(tmp_path)
    theirs = re.sub(r"\d+-$", f"{ended.pid}-", mine)
    (tmp_path / f"{theirs}abc").write_bytes(b"half")
    (tmp_path / f"{theirs}folder").mkdir()
    (tmp_path / f"{theirs}folder" / "x").write_bytes(b"half")
    kept = (f"{mine}mine", ".embspace-00000000-1-else", ".embspace-notes", "x.csv")
    for name in kept:
        (tmp_path / name).write_bytes(b"whole")
    write_atomically(tmp_path / "y.csv", "y")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "y.csv"}


def test_two_processes_fill_the_same_cache_with_the_same(forked, line, tmp_path, monkeypatch):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    started = [forked(line("lens"), stdout=nowhere) for _ in range(2)]
    assert [process.wait() for process in started] == [(0, ""), (0, "")]
    os.close(nowhere)
    (kept,) = (tmp_path / "cache" / "maps").iterdir()
    assert Maps.load(kept).kind == "mat"


def test_a_fit_that_is_interrupted_ends_with_130_and_no_traceback(
    forked, tiny_gpt2, tmp_path, tmp_path_factory
):
    # a folder that no process before has opened: seen open, the work has begun
    model = tmp_path_factory.mktemp("own") / "model"
    shutil.copytree(tiny_gpt2, model)
    command = ["fit", model, "--no-check", "--text", "sample:reference", "--positions", "all"]
    screen, stdout = os.pipe()
    running = forked([*command, "--out", tmp_path / "x.maps"], stdout=stdout)
    os.close(stdout)
    end = time.monotonic() + 300
    while time.monotonic() < end and not _mapped(running.pid, model):
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    code, errors = running.wait()
    assert code == 130
    assert errors.strip() == "interrupted before a batch was read: nothing was kept."
    with os.fdopen(screen, "rb") as shown:
        assert shown.read() == b""
    assert list(tmp_path.iterdir()) == []


def _mapped(pid: int, folder: Path) -> bool:
    """Whether a process has opened the weights: it is at work."""
    maps = Path(f"/proc/{pid}/maps")
    return not maps.exists() or str(folder) in maps.read_text()


@pytest.mark.parametrize("name", ["align", "evidence", "score", "diff"])
def test_forty_columns_are_enough(run, line, monkeypatch, name: str):
    monkeypatch.setenv("COLUMNS", "40")
    result = run(*line(name))
    assert result.exit_code == 0, result.stderr
    assert max(cell_len(text) for text in result.stdout.split("\n")) <= 40


@pytest.mark.parametrize("name", ["score", "align", "evidence"])
def test_a_terminal_without_unicode_is_no_error(forked, line, tmp_path, name: str):
    with (tmp_path / "shown").open("wb") as out:
        assert forked(line(name), stdout=out.fileno(), encoding="ascii").wait() == (0, "")
    assert (tmp_path / "shown").read_bytes().decode("ascii").strip()


@pytest.mark.parametrize("name", ["score", "evidence", "lens"])
def test_a_reader_that_leaves_is_no_error(forked, line, name: str):
    reader, writer = os.pipe()
    os.close(reader)
    running = forked([*line(name), "--json"], stdout=writer)
    os.close(writer)
    assert running.wait() == (141, "")


def test_wrong_values_of_the_commands_that_run_models_are_one_line(run, line, tmp_path):
    for name, wrong in {
        "fit": ("--text", "none.txt"),
        "score": ("--maps", tmp_path / "none.maps"),
        "transfer": ("--other", "none.txt"),
        "submodules": ("-l", 9),
        "stitch": ("--keep", "9"),
        "finetune": ("--blocks", 9),
        "align": ("--groups", "X"),
        "diff": ("--words", "none.txt"),
        "lens": ("--map", tmp_path / "none.maps"),
        "exit": ("--exits", "9"),
        "alternate": ("--budgets", "9"),
    }.items():
        in_one_line(run(*line(name), *wrong))


PLACES = {  # options that name a file to write or to read
    "fit": ("--out", "--text", "--positions-file"),
    "finetune": ("--out", "--data"),
    "stitch": ("--data", "--plot"),
    "diff": ("--words",),
    "lens": ("--map", "--html", "--text", "--plot"),
    "score": ("--maps", "--csv", "--plot"),
    "transfer": ("--other",),
    "align": ("--plot", "--filter"),
}


@pytest.mark.parametrize("bad", ["~nobody-here/x.svg", "x" * 5000 + ".svg", "none/at/all.svg"])
@pytest.mark.parametrize("name", PLACES)
def test_places_that_cannot_be_are_one_line(run, line, name: str, bad: str):
    for option in PLACES[name]:
        in_one_line(run(*line(name), option, f"file:{bad}" if option == "--filter" else bad))
