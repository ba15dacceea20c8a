"""The two consoles, and how results get onto them."""

import contextlib
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 100  # of what has no width of its own, where COLUMNS does not say one
LEAST_WIDTH, MOST_WIDTH = 20, 100_000  # beyond any terminal that shows a table
ISOLATES = {0x2068: None, 0x2069: None}  # for terminals only; a token's own ones are escaped


def console(*, stderr: bool = False) -> "Console":
    """stdout or stderr as rich sees it; plain in a pipe, with NO_COLOR and on dumb terminals.

    A pipe is as wide as COLUMNS says, or 100 cells.
    """
    return _console(sys.stderr if stderr else sys.stdout)


@lru_cache(maxsize=4)
def _console(stream: TextIO) -> "Console":
    from rich.console import Console

    options: dict[str, Any] = {"file": stream, "markup": False, "highlight": False, "emoji": False}
    if os.environ.get("NO_COLOR"):
        options["color_system"] = None
    if not stream.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        options["width"] = PIPE_WIDTH
    screen = Console(**options)
    fitting = max(LEAST_WIDTH, min(screen.width, MOST_WIDTH))
    if screen.width != fitting:
        screen.width = fitting
    return screen


def bar_console() -> "Console":
    """Where a progress bar goes: stderr.

    Where stdout is the same terminal, its console draws the bar, so that lines appear above it.
    """
    return console(stderr=not _one_terminal())


def show(renderable: Any) -> None:
    """Print something rich on stdout; lines in a pipe carry no trailing spaces."""
    screen = console()
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as captured:
        screen.print(renderable)
    text = captured.get().removesuffix("\n").translate(ISOLATES)
    lines = (line.rstrip(" ") for line in text.split("\n"))
    click.echo("\n".join(lines))


def say(text: str) -> None:
    """One line on stderr, beside the results; lost where nobody takes it."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def _one_terminal() -> bool:
    try:
        ids = [os.fstat(stream.fileno()).st_rdev for stream in (sys.stdout, sys.stderr)]
    except (OSError, ValueError):
        return False
    return sys.stdout.isatty() and sys.stderr.isatty() and ids[0] == ids[1]
