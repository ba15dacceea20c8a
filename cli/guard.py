"""Whatever goes wrong becomes one line on stderr and an exit code."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from embspace.errors import EmbspaceError

from .interrupt import exit_code, interrupted
from .options import DEBUG, RUN
from .terminal import say

FAILED = 1
PIPE_CLOSED = 141  # 128 + SIGPIPE, what a shell reports for cat and git: no failure of the work


class PipeClosedError(Exception):
    """A BrokenPipeError under another name, because click turns those into an exit with 1."""


def guarded(run: Callable[[], Any]) -> int:
    """Run a command; its exit code; 130 wherever Ctrl-C came, 143 for SIGTERM."""
    _never_fail_on_characters()
    DEBUG["on"], RUN["command"] = False, None
    code = _guarded(run)
    return exit_code() if interrupted() else code


def _guarded(run: Callable[[], Any]) -> int:
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return exit_code()
    except (BrokenPipeError, PipeClosedError):
        return _pipe_closed()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # what rich makes of it
            return _pipe_closed()
        return error.code if isinstance(error.code, int) else FAILED
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    if interrupted():  # the failure is what became of the interrupt
        return exit_code()
    if DEBUG["on"]:
        raise error
    say(f"error: {spelled(one_line(error))}")
    if isinstance(error, OSError) and not _can_flush():
        _forget_stdout()
    return FAILED


def one_line(error: Exception) -> str:
    """An error in one line; that of a bug says so, and how to see more."""
    text = " ".join(str(error).split())
    if isinstance(error, (EmbspaceError, OSError)):
        return text or type(error).__name__
    return f"unexpected {type(error).__name__}: {text} (embspace --debug … shows where)"


def spelled(message: str) -> str:
    """A message of the library with the running command's options in place of its parameters.

    `text=FILE` of Python is `--text FILE` here, `resume=True` is `--resume`.
    """
    command = RUN["command"]
    for parameter in command.params if command else ():
        if isinstance(parameter, click.Option):
            option = next(name for name in (*parameter.opts, "--") if name.startswith("--"))
            pattern = rf"(?<![\w.=-]){parameter.name}=(True\b)?"
            message = re.sub(pattern, lambda m, o=option: o if m[1] else f"{o} ", message)
    return message


def open_missing_streams() -> None:
    """Streams that the shell closed (`2>&-`) go nowhere; the lowest first, as numbers are given."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf8"))  # noqa: SIM115


def _pipe_closed() -> int:
    _forget_stdout()
    return PIPE_CLOSED


def _can_flush() -> bool:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return False
    return True


def _forget_stdout() -> None:
    """Nobody takes our output any more: say nothing of it, also not at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _never_fail_on_characters() -> None:
    """A terminal that lacks a character gets an escape instead of a crash."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
