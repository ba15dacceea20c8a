"""Options that several commands share."""

import functools
from collections.abc import Callable
from typing import Any

import click

from embspace.cache import require_file
from embspace.weights.aliases import DEFAULT_SAMPLE

from . import completion
from .opening import Opening
from .output import STDOUT, Output

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
DEBUG = {"on": False}  # whether this run shows tracebacks
RUN: dict[str, click.Command | None] = {"command": None}  # the command that runs
Command = Callable[..., Any]


def model_argument(command: Command) -> Command:
    """MODEL, by default the bundled sample."""
    argument = click.argument("model", default=DEFAULT_SAMPLE, shell_complete=completion.models)
    return argument(command)


def opening_options(command: Command) -> Command:
    """How MODEL is opened; the command gets `opening` in place of these and of the model."""
    return unproved_options(_NO_CHECK(command))


def unproved_options(command: Command) -> Command:
    """The same for a command that does not prove the reading first."""

    @functools.wraps(command)
    def with_opening(*, model: str, **given: Any) -> Any:
        if not model.strip():
            raise click.UsageError("MODEL is empty: give a name or a folder, or leave it out.")
        mine = ("revision", "dtype", "device", "trust_remote_code", "no_check")
        opening = Opening(model, **{name: given.pop(name) for name in mine if name in given})
        return command(opening=opening, **given)

    for option in reversed(_OPENING):
        with_opening = option(with_opening)
    return with_opening


def pair_options(one: str, other: str) -> Callable[[Command], Command]:
    """Two models, by default samples, and how both are opened; the command gets `openings`."""

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def with_openings(*, a: str | None, b: str | None, **given: Any) -> Any:
            names = (one, other) if a is None and b is None else (a, b)
            if not all(name and name.strip() for name in names):
                raise click.UsageError(f"give two models, or none for {one} and {other}.")
            mine = ("dtype", "device", "trust_remote_code", "no_check")
            how = {name: given.pop(name) for name in mine}
            revisions = (given.pop("revision_a"), given.pop("revision_b"))
            pairs = zip(names, revisions, strict=True)
            return command(openings=tuple(Opening(n, r, **how) for n, r in pairs), **given)  # type: ignore[arg-type]

        wrapped: Command = with_openings
        for option in (*reversed((*_BOTH, _NO_CHECK, *_REVISIONS)), _model("b"), _model("a")):
            wrapped = option(wrapped)
        return wrapped

    return add


def _model(name: str) -> Callable[[Command], Command]:
    return click.argument(name, required=False, shell_complete=completion.models)


_NO_CHECK = click.option("--no-check", is_flag=True, help="Skip the proof at a model's first use.")
_BOTH = (
    click.option(
        "--device", default="cpu", show_default=True, metavar="D", help="cpu, cuda or cuda:N."
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "float64"]),
        default="float32",
        show_default=True,
        help="Of the arithmetic, whatever the file stores.",
    ),
    click.option("--trust-remote-code", is_flag=True, help="Let the model's own code run."),
)
_OPENING = (
    *_BOTH[:2],
    click.option("--revision", metavar="REV", help="Branch, tag or commit on the Hub."),
    *_BOTH[2:],
)
_REVISIONS = tuple(
    click.option(f"--revision-{side.lower()}", metavar="REV", help=f"Of {side} on the Hub.")
    for side in ("A", "B")
)


def output_options(command: Command) -> Command:
    """--json and --csv; the command gets `output` in their place."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON: the result's to_dict().")
    @click.option("--csv", metavar="FILE", help="Write CSV to FILE; - is stdout.")
    @functools.wraps(command)
    def with_output(*, as_json: bool, csv: str | None, **given: Any) -> Any:
        if csv is not None and not csv.strip():
            raise click.UsageError("--csv is empty: give a file, or - for stdout.")
        if as_json and csv:
            raise click.UsageError("give --json or --csv, not both.")
        if csv is not None and csv != STDOUT:
            require_file(csv)  # before the work, not after
        return command(output=Output(as_json, csv), **given)

    return with_output


def top_option(defaults: str) -> Callable[[Command], Command]:
    """-k, which says how many a command shows without it."""
    return click.option(
        "-k",
        "--top",
        type=click.IntRange(min=1),
        metavar="K",
        help=f"How many of the strongest.  [default: {defaults}]",
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
circuit_option = click.option(
    "--circuit",
    type=click.Choice(["vo", "qk", "both"]),
    default="both",
    show_default=True,
    help="vo: attended to → promoted; qk: asks → attended to.",
)
inverse_option = click.option(
    "--inverse",
    type=click.Choice(["transpose", "pinv"]),
    default="transpose",
    show_default=True,
    help="How E is inverted on the sides that read: E^T, or the pseudo-inverse.",
)
norm_option = click.option(
    "--norm",
    type=click.Choice(["raw", "folded"]),
    default="raw",
    show_default=True,
    help="raw: weights as stored; folded: gains of the norms multiplied in.",
)


def _drawable(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Refuse a figure that could not be written before the work starts, not after."""
    if path is not None:
        from embspace.show.plots.figures import require_plot

        require_plot(path)
    return path


plot_option = click.option(
    "--plot",
    metavar="FILE",
    callback=_drawable,
    help="Draw a figure too: .svg, .pdf or .png (needs embspace[plot]).",
)
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what is drawn."
)


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
