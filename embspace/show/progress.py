"""A progress bar with rate and time left, on a terminal only."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

Item = TypeVar("Item")


def moving(console: Console) -> bool:
    """Whether what moves (a bar, a spinner) may be drawn: on a real terminal only.

    FORCE_COLOR asks for colours in a file or pipe, where every frame would stay.
    """
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


def tracked(items: Iterable[Item], total: int, what: str, console: Console) -> Iterator[Item]:
    """The items as they come, counted by a bar on `console`, which is gone afterwards."""
    if not moving(console) or total < 2:
        yield from items
        return
    with bar(console) as shown:
        task = shown.add_task(what, total=total)
        for item in items:
            shown.advance(task)
            yield item


class LeftColumn(ProgressColumn):
    """Time left, by the rate of the whole work where that is known, else by that of late."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Hours, minutes and seconds."""
        pace = task.fields.get("pace")
        seconds = pace.left if pace is not None else task.time_remaining
        if seconds is None:
            return Text("-:--:--", style="progress.remaining")
        return Text(str(timedelta(seconds=round(seconds))), style="progress.remaining")


class RateColumn(ProgressColumn):
    """Items a second, or seconds an item where they are slow."""

    def render(self, task: Task) -> Text:
        """The task's speed."""
        pace = task.fields.get("pace")
        speed = pace.rate if pace is not None else task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each", style="dim")


def bar(console: Console) -> Progress:
    """A bar of things done, with their rate and the time left."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        LeftColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
