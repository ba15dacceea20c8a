"""What `finetune`, `stitch` and `diff` share: options for labelled texts, and the work."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from .interrupt import stop_if_interrupted
from .opening import Opening
from .output import Output
from .terminal import console, say

if TYPE_CHECKING:
    from embspace.results import Result

Command = Callable[..., Any]


def data_options(command: Command) -> Command:
    """--data and the columns of a table: labelled texts."""
    options = (
        click.option(
            "--data",
            required=True,
            metavar="WHERE",
            help="sample (our own film reviews), imdb (from the Hub), a folder with train and test "
            "of one folder of .txt files a label (pos, neg), or a .jsonl, .csv, .tsv, .parquet "
            "file, of which a fifth is held out.",
        ),
        click.option("--text-column", metavar="NAME", help="Of a table.  [default: text …]"),
        click.option("--label-column", metavar="NAME", help="Of a table.  [default: label …]"),
        click.option("--max-tokens", type=click.IntRange(min=1), help="Longer texts are cut."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def train(opening: Opening, output: Output, *, data: str, out: str, **how: Any) -> None:
    """Open the model, fine-tune it, show how it went."""
    from embspace.between.classifier_folder import check_out
    from embspace.between.finetune import finetune
    from embspace.weights.json_files import path_of

    folder = path_of(out)
    check_out(folder, resume=how["resume"])
    result = finetune(opening.open(), data, folder, watch=watched("steps"), **how)
    say(f"wrote {out}")
    output.one(result)


def join(
    openings: tuple[Opening, Opening], output: Output, *, plot: str | None, data: str, **how: Any
) -> None:
    """Open both models, sweep over the cuts, show the result and draw it."""
    from embspace.between.stitch import stitch
    from embspace.show.plots.stitching import plot_stitching

    a, b = (opening.open() for opening in openings)
    result = stitch(a, b, data, watch=watched("batches"), **how)
    _finish(output, result, plot, plot_stitching)


def compare(openings: tuple[Opening, Opening], output: Output, **how: Any) -> None:
    """Open the base, and the tuned model unless it is an adapter; show what changed."""
    from embspace.between.adapter import is_adapter
    from embspace.between.diff import diff

    base, name = openings[0].open(), openings[1].model
    tuned = name if is_adapter(name) else openings[1].open()
    output.one(diff(base, tuned, watch=watched("layers"), **how))


def _finish(output: Output, result: "Result", plot: str | None, draw: Callable[..., None]) -> None:
    output.one(result)
    if plot:
        draw(result, plot)
        say(f"wrote {plot}")


def watched(what: str) -> Callable[[Iterable[None], int], Iterator[None]]:
    """Steps with a bar on stderr; an interrupt that a library swallowed ends them."""

    def watch(steps: Iterable[None], total: int) -> Iterator[None]:
        from embspace.show.progress import tracked

        for step in tracked(steps, total, what, console(stderr=True)):
            stop_if_interrupted()
            yield step

    return watch
