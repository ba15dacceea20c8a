"""`embspace transfer`: maps of one kind of text on another."""

import click

from . import options as o
from .followed import Followed
from .opening import Opening
from .output import Output
from .texts import TextOptions, require_text, text_options


@o.command("transfer", "Maps of one text on another.")
@o.model_argument
@click.option(
    "--other",
    metavar="TEXT",
    help="The second text.  [default for samples: sample:story]",
)
@o.count("--rows", help="Fit so many lines at most.")
@o.plot_option
@text_options
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: TextOptions,
    other: str | None,
    rows: int | None,
    plot: str | None,
) -> None:
    """Fit maps on each of two texts and score both on held-out lines of each.

    Both fits see equally many rows. The change is what a map loses on a text when it was fitted on
    the other one: the mean over layers of Precision@k, Surprisal and KL.

    \b
        embspace transfer
        embspace transfer gpt2 --text wiki.txt --other news.txt --json
    """
    from embspace.maps.transfer import transfer
    from embspace.weights.aliases import bundled

    if other is None and bundled(opening.model) is None:
        raise click.UsageError("give two texts: --text A --other B.")
    if text.sentences or text.positions_file:
        raise click.UsageError("--sentences and --positions-file name lines of one text only.")
    require_text(other)
    model = text.run(opening.open())
    first, second = text.read(model), text.read(model, other or "sample:story")
    with Followed() as bar:
        found = transfer(model, first, second, rows=rows, progress=bar)
    output.one(found, plot)
