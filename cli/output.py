"""How results leave: a table, lines as they come, JSON or CSV."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embspace.cache import require_file

from .terminal import bar_console, console, say, show

if TYPE_CHECKING:
    from embspace.results import Result

STDOUT = "-"


@dataclass(frozen=True)
class Output:
    """What was asked for: JSON, CSV to a file or stdout, or (neither) something to look at."""

    as_json: bool
    csv: str | None

    def __post_init__(self) -> None:
        if self.csv is not None and not self.csv.strip():
            raise click.UsageError("--csv is empty: give a file, or - for stdout.")
        if self.as_json and self.csv:
            raise click.UsageError("give --json or --csv, not both.")
        if self.csv is not None and self.csv != STDOUT:
            require_file(self.csv)  # before the work, not after

    @property
    def for_people(self) -> bool:
        """Whether results are shown rather than exported."""
        return not (self.as_json or self.csv)

    def one(self, result: "Result", plot: str | None = None) -> None:
        """A single result: its tables, its `to_dict()` as JSON, or its CSV; drawn into `plot`."""
        if self.as_json:
            click.echo(result.to_json())
        elif self.csv:
            self._csv([result])
        else:
            show(result)
        self.draw(result, plot)

    def draw(self, result: "Result", plot: str | None) -> None:
        """The figure of a result, where a file is given for it."""
        if plot is not None:
            from embspace.show import plot as draw

            draw(result, plot)
            say(f"wrote {plot}")

    def several(self, name: str, results: "list[Any]") -> None:
        """Results below each other, a blank line between; JSON is {name: [...]} if not one."""
        if len(results) == 1:
            self.one(results[0])
        elif self.for_people:
            for n, result in enumerate(results):
                if n:
                    click.echo()
                show(result)
        else:
            self.stream(name, results, len(results), show)

    def together(
        self, name: str, results: "list[Any]", noise: float = 0.0, notes: Iterable[str] = ()
    ) -> None:
        """Results of one place as one report; JSON is {name: [...]} where there are several."""
        from embspace.show import together

        if self.for_people:
            show(together(results, noise, notes))
        else:
            self.several(name, results)

    def stream(
        self,
        name: str,
        results: "Iterable[Any]",
        total: int,
        line: Callable[[Any], Any],
        heading: Any = None,
    ) -> None:
        """Results as they come: `line` of each below a heading, {name: [...]}, or CSV rows.

        Nothing is printed before the first result is there: its failure leaves stdout empty.
        """
        from embspace.show.progress import tracked

        quiet = not self.for_people and self.csv != STDOUT
        where = console(stderr=True) if quiet else bar_console()
        results = _begun(tracked(results, total, name, where))
        if self.as_json:
            _json_lines(name, results)
        elif self.csv:
            self._csv(results)
        else:
            show(heading) if heading else None
            for result in results:
                show(line(result))

    def _csv(self, results: "Iterable[Result]") -> None:
        """CSV of all rows under one header; a file appears whole or not at all."""
        from embspace.cache import write_atomically

        if self.csv == STDOUT:
            for text in _csv_parts(results):
                click.echo(text, nl=False)
            return
        path = Path(self.csv or "")
        text = "".join(_csv_parts(results))
        write_atomically(path, text)
        say(f"wrote {path}")


def _begun(results: "Iterator[Any]") -> "Iterator[Any]":
    """The same results, the first one found already."""
    first = list(islice(results, 1))
    return chain(first, results)


def _csv_parts(results: "Iterable[Result]") -> Iterator[str]:
    from embspace.results import csv_text

    header = True
    for result in results:
        rows = result.rows()
        yield csv_text(rows, header=header)
        header = header and not rows


def _json_lines(name: str, results: "Iterable[Result]") -> None:
    """One JSON document, {name: [...]}, with one result a line."""
    click.echo(f"{{{json.dumps(name)}: [", nl=False)
    for n, result in enumerate(results):
        click.echo((",\n" if n else "\n") + result.to_json(indent=None), nl=False)
    click.echo("\n]}")
