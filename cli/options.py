"""Options that several commands share."""

import functools
from collections.abc import Callable
from typing import Any

import click

from embspace.models.aliases import DEFAULT_SAMPLE

from .opening import Opening
from .output import Output

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
DEBUG = {"on": False}  # whether this run shows tracebacks
Command = Callable[..., Any]


def model_argument(command: Command) -> Command:
    """MODEL, by default the bundled sample."""
    return click.argument("model", default=DEFAULT_SAMPLE)(command)


def opening_options(command: Command) -> Command:
    """How MODEL is opened; the command gets `opening` in place of these and of the model."""

    @functools.wraps(command)
    def with_opening(*, model: str, **given: Any) -> Any:
        mine = ("revision", "dtype", "device", "trust_remote_code", "no_check")
        opening = Opening(model, **{name: given.pop(name) for name in mine})
        return command(opening=opening, **given)

    for option in reversed(_OPENING):
        with_opening = option(with_opening)
    return with_opening


_OPENING = (
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
    click.option("--revision", metavar="REV", help="Branch, tag or commit on the Hub."),
    click.option("--trust-remote-code", is_flag=True, help="Let the model's own code run."),
    click.option("--no-check", is_flag=True, help="Skip the proof at a model's first use."),
)


def output_options(command: Command) -> Command:
    """--json and --csv; the command gets `output` in their place."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON: the result's to_dict().")
    @click.option("--csv", metavar="FILE", help="Write CSV to FILE; - is stdout.")
    @functools.wraps(command)
    def with_output(*, as_json: bool, csv: str | None, **given: Any) -> Any:
        if as_json and csv:
            raise click.UsageError("give --json or --csv, not both.")
        return command(output=Output(as_json, csv), **given)

    return with_output


top_option = click.option(
    "-k",
    "--top",
    type=click.IntRange(min=1),
    metavar="K",
    help="How many of the strongest.",
)
layer_option = click.option("-l", "--layer", type=int, metavar="N", help="Layer, from 0.")
head_option = click.option("--head", type=int, metavar="N", help="Head, from 0.")
filter_option = click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME",
    help="Only tokens that are ascii, alnum, words (whole words), text (no special tokens), "
    "file:PATH (tokens of a text file) or re:PATTERN. Repeat to combine.",
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


def debug_option(command: Command) -> Command:
    """--debug: tracebacks instead of one-line errors, remembered in `DEBUG`."""

    def switch(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        DEBUG["on"] |= value

    return click.option(
        "--debug",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=switch,
        help="Show the traceback of an error.",
    )(command)
