"""How long work is followed on stderr: a bar on a terminal, a plain line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

from .interrupt import stop_if_interrupted
from .terminal import console, say

Item = TypeVar("Item")
FIRST_S, EVERY_S = 1.5, 30.0  # when plain lines come
PREPARING = "preparing"
WHAT = {
    "fit": "tokens read",
    "choice": "tokens read",
    "score": "held-out tokens read",
    "solve": "spaces mapped from",
}


class Beat:
    """A plain line on stderr after `first` seconds, then every half minute, until it is closed."""

    def __init__(self, line: Callable[[], str], first: float | None = None) -> None:
        self._line, self._first, self._end = line, first, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Beat":
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        wait = FIRST_S if self._first is None else self._first
        while not self._end.wait(wait):
            say(self._line())
            wait = EVERY_S


def working(what: str) -> AbstractContextManager[Any]:
    """What is being done, while it lasts: a spinner, or plain lines where stderr is no terminal."""
    from rich.text import Text

    from embspace.show.progress import moving

    screen = console(stderr=True)
    if moving(screen):
        return screen.status(Text(what))
    start = time.monotonic()
    return Beat(lambda: f"{what} … {time.monotonic() - start:.0f} s", first=EVERY_S / 2)


def watched(what: str) -> Callable[[Iterable[Item], int], Iterator[Item]]:
    """Steps with a bar on stderr; an interrupt that a library swallowed ends them."""

    def watch(steps: Iterable[Item], total: int) -> Iterator[Item]:
        from embspace.show.progress import tracked

        for step in tracked(steps, total, what, console(stderr=True)):
            stop_if_interrupted()
            yield step

    return watch


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
