"""What the experiments share: a bar while they run, and how their results leave."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .options import plot_option, seed_option
from .output import Output
from .terminal import console, say

if TYPE_CHECKING:
    from embspace.models.corpus import Corpus
    from embspace.results import Result

Item = TypeVar("Item")
__all__ = [
    "WAY_OUT",
    "finish",
    "followed",
    "plot_option",
    "read_text",
    "seed_option",
    "text_options",
]
WAY_OUT = "measure fewer vectors, or use --dtype float32."


def text_options(n: int) -> Callable[[Any], Any]:
    """--text, --texts and --column: what the model is run on."""
    options = (
        click.option(
            "--text",
            metavar="FILE",
            help="Sentences, one a line; or a .jsonl, .csv, .tsv file, a folder, hub:NAME.",
        ),
        click.option(
            "--texts",
            type=click.IntRange(min=2),
            default=n,
            show_default=True,
            metavar="N",
            help="How many of them.",
        ),
        click.option("--column", metavar="NAME", help="Of a table of texts."),
    )

    def with_text(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return with_text


def read_text(model: Any, text: str | None, n: int, column: str | None) -> "Corpus":
    """The sentences to run on, by default what suits the model. Raises EmbspaceError."""
    from embspace.models.corpus import default_corpus, read_corpus

    if text is None:
        return default_corpus(model, n)
    return read_corpus(text, column=column, limit=n)


def followed(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items as they come, counted on stderr."""
    from embspace.report.progress import tracked

    yield from tracked(items, total, what, console(stderr=True))


def finish(output: Output, result: "Result", plot: str | None) -> None:
    """Show or export the result, drawn where asked."""
    output.one(result)
    if plot is not None:
        from embspace.report.plots.evidence import plot_evidence

        plot_evidence(result, plot)
        say(f"wrote {plot}")
