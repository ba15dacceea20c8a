"""Pipes, terminals, encodings, interrupted readers."""

import json
import os
import pty
import re
import select

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
    shown = run("heads", awkward, *HEAD, "--circuit", "vo", "-k", 400).stdout
    lines = shown.split("\n")
    for pair in result.pairs:
        assert any(pair.source in line and pair.target in line for line in lines)


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
    import sys

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
    assert running.wait() != 0
    running.stderr.close()


def test_a_terminal_without_unicode_is_no_error(process, awkward):
    running = process("heads", awkward, *HEAD, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    shown, errors = running.communicate()
    assert running.returncode == 0 and errors == ""
    assert "->" in shown and r"\u65e5" in shown
