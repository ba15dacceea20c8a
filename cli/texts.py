"""Options that say what a model is run on: sentences, positions, how the pass is computed."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from .options import seed_option
from .terminal import say

if TYPE_CHECKING:
    from embspace.text.text import Text
    from embspace.weights.model import AnyModel, Model

SOURCES = (
    "a file (one a line), a .jsonl, .csv, .tsv or .parquet file, a folder of .txt, "
    "hub:NAME@CONFIG#SPLIT, sample:reference or sample:story"
)
DEFAULT = "[default: our own for a bundled sample, else Wikipedia from the Hub]"


@dataclass(frozen=True)
class Reading:
    """What was asked for."""

    text: str | None
    column: str | None
    sentences: str | None
    positions: str
    positions_file: str | None
    max_tokens: int | None
    no_special: bool
    skip_first: int
    seed: int
    run_dtype: str

    def run(self, model: "AnyModel") -> "AnyModel":
        """The model, run as --run-dtype says."""
        return model.with_run(dtype=self.run_dtype)

    def read(
        self,
        model: "Model",
        source: str | None = None,
        *,
        sentences: Literal["fit", "held_out"] = "held_out",
        fit: str | None = None,
    ) -> "Text":
        """The text, with how its positions are taken.

        sentences: what the lines of --sentences are for; fit: other lines, to fit.
        Raises TextError.
        """
        from embspace.text.splits import line_range
        from embspace.text.text import Text

        source = source or self.text
        if source == "self":
            from embspace.live.own_text import sampled

            say("sampling sentences from the model itself")
            text = sampled(model, seed=self.seed)
        elif source is None:
            text = Text.of(None, model)
        else:
            text = Text.read(source, column=self.column)
        lines = None if self.sentences is None else tuple(line_range(self.sentences, text))
        named: dict[str, Any] = {sentences: lines}
        if fit is not None:
            named["fit"] = tuple(line_range(fit, text))
        return Text.read(
            text,
            positions=self._positions(text, lines),
            max_tokens=self.max_tokens,
            special=not self.no_special,
            skip_first=self.skip_first,
            seed=self.seed,
            **named,
        )

    def _positions(self, text: "Text", lines: tuple[int, ...] | None) -> Any:
        if self.positions_file is not None:
            from embspace.text.passages import read_positions

            chosen = lines or range(len(text))
            return read_positions(Path(self.positions_file), chosen, len(text))
        return int(self.positions) if self.positions.isdecimal() else self.positions


def text_option(what: str = "Sentences", *, itself: bool = False) -> Callable[..., Any]:
    """--text, where `what` says what it is for; `itself`: also sampled from the model."""
    more = "; or self (sampled from the model)" if itself else ""
    return click.option("--text", metavar="TEXT", help=f"{what}: {SOURCES}{more}.  {DEFAULT}")


column_option = click.option("--column", metavar="NAME", help="Of a table of texts.")
no_special_option = click.option(
    "--no-special", is_flag=True, help="Add no special tokens ([CLS], <s>)."
)


def some_texts_options(n: int) -> Callable[[Any], Any]:
    """--text, --texts and --column, for work that takes a few texts, by default n."""
    count = click.option(
        "--texts",
        type=click.IntRange(min=2),
        default=n,
        show_default=True,
        metavar="N",
        help="How many of them.",
    )

    def with_texts(command: Any) -> Any:
        return text_option()(count(column_option(command)))

    return with_texts


def read_some(
    model: "Model", text: str | None, n: int, column: str | None, **settings: Any
) -> "Text":
    """The first n sentences, by default of what suits the model. Raises EmbspaceError."""
    from embspace.text.text import Text

    if text is None:
        return Text.read(Text.of(None, model, n), **settings)
    return Text.read(text, column=column, limit=n, **settings)


def text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--text and all that goes with it; the command gets `reading` in their place."""

    @functools.wraps(command)
    def with_reading(**given: Any) -> Any:
        mine = {name: given.pop(name) for name in Reading.__dataclass_fields__}
        if mine["positions_file"] and mine["positions"] != "random":
            raise click.UsageError("give --positions or --positions-file, not both.")
        return command(reading=Reading(**mine), **given)

    for option in reversed(_TEXT):
        with_reading = option(with_reading)
    return with_reading


def _positions(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if value in ("random", "all") or (value.isascii() and value.isdecimal() and int(value) > 0):
        return value
    raise click.BadParameter(f"{value!r}: give random, all or a number from 1.")


_TEXT = (
    text_option(itself=True),
    column_option,
    click.option(
        "--sentences", metavar="A-B", help="Only these lines, counted from 0, both ends included."
    ),
    click.option(
        "--positions",
        default="random",
        show_default=True,
        callback=_positions,
        metavar="random|N|all",
        help="Token positions taken of a sentence: one at random, N, or all.",
    ),
    click.option("--positions-file", metavar="FILE", help="One index a line instead."),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        metavar="N",
        help="Cut sentences.  [default: 256]",
    ),
    no_special_option,
    click.option(
        "--skip-first",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Never take the first N tokens, which often hold outliers.",
    ),
    seed_option,
    click.option(
        "--run-dtype",
        type=click.Choice(["float32", "float64", "bfloat16", "float16"]),
        default="float32",
        show_default=True,
        help="Of the model's forward pass.",
    ),
)
