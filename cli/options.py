"""Options that several commands share."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import click

from embspace.weights.aliases import DEFAULT_SAMPLE

from . import completion
from .opening import Opening
from .output import Output

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
DEBUG = {"on": False}  # whether this run shows tracebacks
RUN: dict[str, click.Command | None] = {"command": None}  # the command that runs
Command = Callable[..., Any]


class ExampledCommand(click.Command):
    """A command whose help ends with its examples, below the options."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the command does."""
        full = self.help
        self.help = self._parts()[0]
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = full

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples: what stands after the last \\b of the help."""
        with formatter.section("Examples"):
            formatter.write_text("\b\n" + inspect.cleandoc(self._parts()[1]))

    def _parts(self) -> tuple[str, str]:
        about, _, examples = (self.help or "").rpartition("\b\n")
        return about, examples


class ExampledGroup(ExampledCommand, click.Group):
    """The same for a group, whose commands are listed in the order in which they were given."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self.commands)


def command(name: str, short_help: str) -> Callable[[Command], Any]:
    """The decorator of every command: its name, a line for the list of commands, and --debug."""
    how = {"context_settings": CONTEXT, "short_help": short_help}
    make = click.command(name, cls=ExampledCommand, **how)
    return lambda function: debug_option(make(function))


def gather(name: str, make: Callable[..., Any], *options: Command) -> Callable[[Command], Command]:
    """A decorator that adds options to a command, which gets one argument `name` in their place.

    `make` takes the options by name, as its parameters say, and returns that argument.
    """
    taken = inspect.signature(make).parameters

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def gathering(**values: Any) -> Any:
            mine = {one: values.pop(one) for one in taken if one in values}
            return command(**{name: make(**mine)}, **values)

        for option in reversed(options):
            gathering = option(gathering)
        return gathering

    return add


def count(
    *names: str, help: str, default: int | None = None, least: int = 1, metavar: str = "N"
) -> Command:
    """An option that takes a whole number, from `least` on."""
    kind, shown = click.IntRange(min=least), default is not None
    return click.option(
        *names, type=kind, default=default, show_default=shown, metavar=metavar, help=help
    )


def choice(*names: str, values: list[str], help: str, default: str | None = None) -> Command:
    """An option that takes one of a few words, by default the first."""
    kind = click.Choice(values)
    return click.option(
        *names, type=kind, default=default or values[0], show_default=True, help=help
    )


def model_argument(command: Command) -> Command:
    """MODEL, by default the bundled sample."""
    argument = click.argument("model", default=DEFAULT_SAMPLE, shell_complete=completion.models)
    return argument(command)


_DEVICE = click.option(
    "--device", default="cpu", show_default=True, metavar="D", help="cpu, cuda or cuda:N."
)
_DTYPE = choice(
    "--dtype", values=["float32", "float64"], help="Of the arithmetic, whatever the file stores."
)
_TRUST = click.option("--trust-remote-code", is_flag=True, help="Let the model's own code run.")
_NO_CHECK = click.option("--no-check", is_flag=True, help="Skip the proof at a model's first use.")


def _revision(side: str = "") -> Command:
    name = f"--revision-{side}" if side else "--revision"
    what = f"Of {side.upper()} on the Hub." if side else "Branch, tag or commit on the Hub."
    return click.option(name, metavar="REV", help=what)


# How MODEL is opened; the command gets `opening` in place of these and of the model. The second
# is for a command that does not prove the reading first.
_UNPROVED = (_DEVICE, _DTYPE, _revision(), _TRUST)
opening_options = gather("opening", Opening, *_UNPROVED, _NO_CHECK)
unproved_options = gather("opening", Opening, *_UNPROVED)


def pair_options(one: str, other: str) -> Callable[[Command], Command]:
    """Two models, by default samples, and how both are opened; the command gets `openings`."""

    def openings(
        a: str | None,
        b: str | None,
        revision_a: str | None,
        revision_b: str | None,
        dtype: str,
        device: str,
        trust_remote_code: bool,
        no_check: bool,
    ) -> tuple[Opening, Opening]:
        if a is None and b is None:
            a, b = one, other
        if not (a and a.strip() and b and b.strip()):
            raise click.UsageError(f"give two models, or none for {one} and {other}.")
        how = (dtype, device, trust_remote_code, no_check)
        return Opening(a, revision_a, *how), Opening(b, revision_b, *how)

    models = (
        click.argument(name, required=False, shell_complete=completion.models) for name in "ab"
    )
    how = (_DEVICE, _DTYPE, _TRUST, _NO_CHECK, _revision("a"), _revision("b"))
    return gather("openings", openings, *models, *how)


def _labelled(ctx: click.Context, parameter: click.Parameter, data: str) -> str:
    """Refuse texts that are not there before a model is opened."""
    from embspace.text.labelled import require_labelled

    require_labelled(data)
    return data


def data_options(command: Command) -> Command:
    """--data, the columns of a table, and --max-tokens: labelled texts."""
    options = (
        click.option(
            "--data",
            required=True,
            callback=_labelled,
            metavar="WHERE",
            help="sample (our own film reviews), imdb (from the Hub), a folder with train and test "
            "of one folder of .txt files a label (pos, neg), or a .jsonl, .csv, .tsv, .parquet "
            "file, of which a fifth is held out.",
        ),
        click.option("--text-column", metavar="NAME", help="Of a table.  [default: text …]"),
        click.option("--label-column", metavar="NAME", help="Of a table.  [default: label …]"),
        count("--max-tokens", help="Longer texts are cut."),
    )
    for option in reversed(options):
        command = option(command)
    return command


# --json and --csv; the command gets `output` in their place.
output_options = gather(
    "output",
    Output,
    click.option("--json", "as_json", is_flag=True, help="Print JSON: the result's to_dict()."),
    click.option("--csv", metavar="FILE", help="Write CSV to FILE; - is stdout."),
)


def top_option(defaults: str) -> Callable[[Command], Command]:
    """-k, which says how many a command shows without it."""
    return count(
        "-k", "--top", metavar="K", help=f"How many of the strongest.  [default: {defaults}]"
    )


layer_option = click.option("-l", "--layer", type=int, metavar="N", help="Layer, from 0.")
head_option = click.option("--head", type=int, metavar="N", help="Head, from 0.")
filter_option = click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.filters,
    help="Only tokens that are ascii, alnum (ASCII letters and digits), unicode-alnum, words "
    "(tokens that begin a word, with a leading space or without ##, followed by three or more "
    "letters and nothing else; pieces such as ·Nicarag pass), text (no special tokens), file:PATH "
    "(tokens of a text file in any case, with or without a space), file-exact:PATH (those alone) "
    "or re:PATTERN. "
    "Repeat to combine.",
)
circuit_option = choice(
    "--circuit",
    values=["ov", "vo", "qk", "both"],
    default="both",
    help="ov (or vo): attended to → promoted; qk: asks → attended to.",
)
inverse_option = choice(
    "--inverse",
    values=["transpose", "pinv"],
    help="How E is inverted on the sides that read: E^T, or the pseudo-inverse.",
)
norm_option = choice(
    "--norm",
    values=["raw", "folded"],
    help="raw: weights as stored; folded: gains of the norms multiplied in.",
)


def _drawable(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Refuse a figure that could not be written before the work starts, not after."""
    if path is not None:
        from embspace.show.figures import require_plot

        require_plot(path)
    return path


plot_option = click.option(
    "--plot",
    metavar="FILE",
    callback=_drawable,
    help="Draw a figure too: .svg, .pdf or .png (needs embspace[plot]).",
)
seed_option = count("--seed", default=0, least=0, help="Of what is drawn.")


def debug_option(command: Command) -> Command:
    """--debug: tracebacks instead of one-line errors. Kept in `DEBUG`; the command in `RUN`."""

    def switch(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        DEBUG["on"] |= value
        RUN["command"] = ctx.command

    return click.option(
        "--debug",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=switch,
        help="Show the traceback of an error.",
    )(command)
