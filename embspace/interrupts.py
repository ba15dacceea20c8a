"""Interrupts that wait while something is changed that must stay whole."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WAITING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held() -> Iterator[None]:
    """SIGINT and SIGTERM that come while this is open act when it closes, as they would have.

    Only in the main thread, where Python handles signals, and only for handlers written in Python:
    a signal that ends the process outright, or is ignored, still does.
    """
    handlers = {n: h for n in WAITING if callable(h := signal.getsignal(n))}
    if threading.current_thread() is not threading.main_thread() or not handlers:
        yield
        return
    came: list[tuple[Any, Any]] = []
    for number in handlers:
        signal.signal(number, lambda number, frame: came.append((signal.Signals(number), frame)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            number, frame = came[0]
            handlers[number](number, frame)
