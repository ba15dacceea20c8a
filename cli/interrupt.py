"""Ctrl-C and SIGTERM, remembered: libraries that swallow the exception cannot make us forget it."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .terminal import say

_seen: list[int] = []
_typed: list[str] = []


def watch() -> None:
    """From now on, SIGINT and SIGTERM are noted and raise KeyboardInterrupt, so that what is
    unfinished is saved or removed; a signal that is ignored stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _note)


def note_command(arguments: Sequence[str] | None) -> None:
    """Remember what was typed after `embspace`."""
    _typed[:] = sys.argv[1:] if arguments is None else list(arguments)


def typed_command(*more: str) -> str:
    """What was typed, with some options more, to be typed again."""
    return shlex.join(["embspace", *_typed, *(one for one in more if one not in _typed)])


@contextmanager
def told_what_is_kept(
    place: Path, states: Callable[[], list[Path]], *, again: str | None = None
) -> Iterator[None]:
    """After an interrupt, say what was kept and what to type to go on.

    `states()` lists the files of the unfinished work that there are, `place` is what they are
    called together; `again` says how to go on where what was typed and --resume is not it.
    """
    before = {state: state.stat().st_mtime_ns for state in states()}
    try:
        yield
    except KeyboardInterrupt:
        kept = [s for s in states() if s.stat().st_mtime_ns != before.get(s)]
        if kept or (before and "--resume" in _typed):
            command = again or typed_command("--resume")
            say(f"interrupted: what was done is kept in {place}. To go on:\n    {command}")
        else:
            say("interrupted before a batch was read: nothing was kept.")
        raise


def interrupted() -> bool:
    """Whether an interrupt came, even if something swallowed its exception."""
    return bool(_seen)


def exit_code() -> int:
    """What a shell reports for a process that the signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (_seen[0] if _seen else signal.SIGINT)


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt again where it was swallowed."""
    if interrupted():
        raise KeyboardInterrupt


def _note(number: int, frame: Any) -> None:
    _seen.append(number)
    raise KeyboardInterrupt
