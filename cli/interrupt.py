"""Ctrl-C and SIGTERM, remembered: libraries that swallow the exception cannot make us forget it."""

import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Any

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
