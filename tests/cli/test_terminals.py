"""Pipes, terminals, encodings, interrupted readers."""

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys

import pytest
from rich.cells import cell_len

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
HEAD = ("--layer", 0, "--head", 0)


@pytest.mark.parametrize("command", [("heads",), ("heads", *HEAD), ("ff",), ("token", "word3")])
def test_a_pipe_gets_plain_text_without_trailing_spaces(run, awkward, command):
    name, *rest = command
    arguments = (name, awkward, *rest)
    shown = run(*arguments).stdout
    assert "\x1b" not in shown
    assert all(line == line.rstrip(" ") for line in shown.split("\n"))


def test_a_pipe_loses_nothing(run, awkward):
    import embspace

    result = embspace.load(awkward).heads[0, 0].vo.top_pairs(400)
    arguments = ("heads", awkward, *HEAD, "--circuit", "vo", "-k", 400)
    for columns, longest in (("", 30), ("250", 80)):  # longer labels are folded, not cut
        lines = run(*arguments, COLUMNS=columns).stdout.split("\n")
        for pair in result.pairs:
            if max(len(pair.source), len(pair.target)) <= longest:
                assert any(pair.source in line and pair.target in line for line in lines), pair
    assert run(*arguments, COLUMNS="").stdout.count("x") >= 60


@pytest.mark.parametrize("command", [("heads",), ("align", "sample-bert-a"), ("lens",)])
def test_a_pipe_is_a_hundred_cells_wide_unless_columns_says_otherwise(run, awkward, command):
    name, *rest = command
    arguments = (name, *(rest or [awkward])) if name != "lens" else (name, "--map", "id")
    arguments = (*arguments, "sample-bert-b") if name == "align" else arguments
    shown = run(*arguments, COLUMNS="").stdout
    assert max(cell_len(line) for line in shown.split("\n")) <= 100


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("command", ["heads", "ff"])
def test_columns_says_how_wide_lines_may_be(run, awkward, command, width):
    shown = run(command, awkward, COLUMNS=str(width)).stdout
    assert max(cell_len(line) for line in shown.split("\n")) <= width


def test_stdout_holds_the_results_and_nothing_else(run, tiny_gpt2):
    found = run("heads", tiny_gpt2, "--json")
    assert json.loads(found.stdout) and found.stderr == ""


def in_terminal(arguments: list[object], **env: str) -> str:
    """What a command writes to a terminal, escape codes included."""
    command = [sys.executable, "-m", "embspace", *(str(a) for a in arguments)]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"} | env
    child, screen = pty.fork()
    if child == 0:
        os.execve(command[0], command, environment)
    parts = []
    while select.select([screen], [], [], 120)[0]:
        try:
            part = os.read(screen, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.waitpid(child, 0)
    os.close(screen)
    return b"".join(parts).decode("utf8")


def test_a_terminal_gets_colours_and_a_bar(tiny_gpt2):
    shown = in_terminal(["heads", tiny_gpt2])
    assert "\x1b[36m" in shown
    assert "24/24" in shown or "heads" in shown


def test_no_color_is_respected(tiny_gpt2):
    shown = in_terminal(["heads", tiny_gpt2, *HEAD], NO_COLOR="1")
    assert not ESCAPE.search(shown)
    assert "W_VO" in shown


def test_a_reader_that_leaves_is_no_error(process, tiny_gpt2):
    running = process("heads", tiny_gpt2, "--top", 500, "--json")
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 141
    running.stderr.close()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_closed_streams_are_no_error(tiny_gpt2, number):
    command = [sys.executable, "-m", "embspace", "heads", str(tiny_gpt2), "--layer", "0"]
    shell = f"exec {shlex.join(command)} {number}>&-"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stderr == ""


@pytest.mark.parametrize("columns", ["0", "1", "999999999999"])
def test_columns_beyond_reason_are_no_error(run, tiny_gpt2, columns):
    for command in (("heads",), ("heads", *HEAD), ("ff",)):
        name, *rest = command
        shown = run(name, tiny_gpt2, *rest, COLUMNS=columns)
        assert shown.exit_code == 0 and shown.stdout


def test_an_interrupt_ends_with_130_and_no_traceback(process, tiny_gpt2):
    running = process("heads", tiny_gpt2, "-k", 5000)
    running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate()
    assert running.returncode == 130 and errors.strip() == ""


def test_right_to_left_marks_stay_out_of_pipes(run, awkward):
    shown = run("heads", awkward, *HEAD, "-k", 900).stdout
    assert "שלום" in shown and "\u2068" not in shown


def test_a_terminal_without_unicode_is_no_error(process, awkward):
    running = process("heads", awkward, *HEAD, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    shown, errors = running.communicate()
    assert running.returncode == 0 and errors == ""
    assert "->" in shown and r"\u65e5" in shown


def test_forced_colours_bring_no_moving_frames_into_a_pipe(process, tiny_gpt2):
    """FORCE_COLOR asks for colours; a spinner or bar would leave its frames in a log."""
    for command in (("heads", tiny_gpt2, *HEAD), ("ff", tiny_gpt2)):
        _, errors = process(*command, FORCE_COLOR="1", TERM="xterm-256color").communicate()
        assert "\x1b[" not in errors and "checking" not in errors
