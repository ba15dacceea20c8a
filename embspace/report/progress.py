"""A progress bar with rate and time left, on a terminal only."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
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


class RateColumn(ProgressColumn):
    """Items a second, or seconds an item where they are slow."""

    def render(self, task: Task) -> Text:
        """The task's speed."""
        speed = task.finished_speed or task.speed
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
        TimeRemainingColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
