"""How long work is followed on stderr: a bar on a terminal, a plain line now and then elsewhere."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from .interrupt import stop_if_interrupted
from .terminal import console, say

FIRST_S, EVERY_S = 1.5, 30.0  # when plain lines come
PREPARING = "preparing"
WHAT = {"fit": "tokens read", "choice": "tokens read", "score": "held-out tokens read"}


class Beat:
    """A plain line on stderr after a moment, then every half minute, until it is closed."""

    def __init__(self, line: Callable[[], str]) -> None:
        self._line, self._end = line, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Beat":
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        wait = FIRST_S
        while not self._end.wait(wait):
            say(self._line())
            wait = EVERY_S


def beating(what: str) -> AbstractContextManager[Any]:
    """Plain lines that say what is being done, where stderr is no terminal that shows a spinner."""
    from embspace.show.progress import moving

    start = time.monotonic()

    def line() -> str:
        seconds = time.monotonic() - start
        return f"{what} …" if seconds < EVERY_S else f"{what} … {seconds:.0f} s"

    return ExitStack() if moving(console(stderr=True)) else Beat(line)


class Pace:
    """How far some work is, how fast it goes and how long the rest will take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self.what, self.done, self.total = clock, "", 0, 0
        self._start, self._from = 0.0, 0

    def note(self, what: str, done: int, total: int) -> bool:
        """Take a report; whether it is of new work, and not the same going on.

        Work goes on where only its name changes: done and total count through all its parts.
        """
        new = total != self.total or done < self.done
        self.what, self.done, self.total = what, done, total
        if new:  # what was done before the first report was not done in the time since
            self._start, self._from = self._clock(), done
        return new

    @property
    def rate(self) -> float | None:
        """Units a second since the work began, or None so far."""
        seconds = self._clock() - self._start
        return (
            (self.done - self._from) / seconds if seconds > 0 and self.done > self._from else None
        )

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take at this rate, or None so far."""
        return (self.total - self.done) / self.rate if self.rate else None

    def line(self) -> str:
        """All that in one line."""
        if not self.total:
            return f"{PREPARING} …"
        name = WHAT.get(self.what, self.what)
        said = f"{name}: {self.done:,} of {self.total:,} ({self.done / self.total:.0%})"
        if self.rate is None or self.left is None:
            return said
        return f"{said}, {self.rate:,.3g} a second, {_lasting(self.left)} left"


def _lasting(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Followed:
    """A bar with tokens a second and time left, or plain lines, fed by `progress`."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._bar: Any = None
        self._task: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> "Followed":
        from embspace.show.progress import bar, moving

        screen = console(stderr=True)
        if moving(screen):
            self._bar = self._stack.enter_context(bar(screen))
            self._task = self._bar.add_task(PREPARING, total=None)
        else:
            self._stack.enter_context(Beat(self.pace.line))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far the work is; raise KeyboardInterrupt where one was swallowed."""
        stop_if_interrupted()
        new = self.pace.note(what, done, total)
        if self._bar is None:
            return
        name = WHAT.get(what, what)
        if new:
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(name, total=total, completed=done, pace=self.pace)
        self._bar.update(self._task, description=name, completed=done)
