"""Ctrl-C, remembered: libraries that swallow the exception cannot make us forget it."""

import signal
from typing import Any

_seen: list[int] = []


def watch() -> None:
    """From now on, note an interrupt before raising it; one that is ignored stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def interrupted() -> bool:
    """Whether an interrupt came, even if something swallowed its exception."""
    return bool(_seen)


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt again where it was swallowed."""
    if interrupted():
        raise KeyboardInterrupt


def _note(number: int, frame: Any) -> None:
    _seen.append(number)
    raise KeyboardInterrupt
