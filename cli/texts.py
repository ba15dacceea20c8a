"""Options that say what a model is run on: sentences, positions, how the pass is computed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from . import options as o
from .followed import working
from .terminal import say

if TYPE_CHECKING:
    from embspace.text.text import Text
    from embspace.weights.model import AnyModel, Model

SOURCES = (
    "a file (one a line), a .jsonl, .csv, .tsv or .parquet file, a folder of .txt, "
    "hub:NAME@CONFIG#SPLIT, sample:reference or sample:story"
)
ITSELF = "self"  # --text self: sentences sampled from the model
DEFAULT = "[default: our own for a bundled sample, else Wikipedia from the Hub]"


@dataclass(frozen=True)
class TextOptions:
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

    def __post_init__(self) -> None:
        if self.positions_file and self.positions != "random":
            raise click.UsageError("give --positions or --positions-file, not both.")
        require_text(self.text)

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
        if source == ITSELF:
            from embspace.live.own_text import sampled

            say("sampling sentences from the model itself")
            text = sampled(model, seed=self.seed)
        else:
            text = read_text(model, source, self.column)
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


def require_text(source: str | None) -> None:
    """Refuse a text that is not there; to be called before a model is opened."""
    if source not in (None, ITSELF):
        from embspace.text.sources import require_source

        require_source(source)


def text_option(what: str = "Sentences", *, itself: bool = False) -> Callable[..., Any]:
    """--text, where `what` says what it is for; `itself`: also sampled from the model."""
    more = "; or self (sampled from the model)" if itself else ""
    return click.option(
        "--text",
        metavar="TEXT",
        help=f"{what}: {SOURCES}{more}.  {DEFAULT}",
    )


column_option = click.option("--column", metavar="NAME", help="Of a table of texts.")
no_special_option = click.option(
    "--no-special", is_flag=True, help="Add no special tokens ([CLS], <s>)."
)


def some_texts_options(n: int) -> o.Command:
    """--text, --texts and --column, for work that takes a few texts, by default n."""
    texts = o.count("--texts", default=n, least=2, help="How many of them.")
    return lambda command: text_option()(texts(column_option(command)))


def read_text(
    model: "Model",
    source: str | None,
    column: str | None = None,
    *,
    limit: int | None = None,
    **settings: Any,
) -> "Text":
    """The sentences of a source, by default of what suits the model. Raises TextError."""
    from embspace.text.text import Text

    with working("reading the text"):
        text = (
            Text.of(None, model, limit)
            if source is None
            else Text.read(source, column=column, limit=limit)
        )
    return Text.read(text, **settings)


def _positions(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if value in ("random", "all") or (value.isascii() and value.isdecimal() and int(value) > 0):
        return value
    raise click.BadParameter(f"{value!r}: give random, all or a number from 1.")


# --text and all that goes with it; the command gets `text` in their place.
text_options = o.gather(
    "text",
    TextOptions,
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
    o.count("--max-tokens", help="Cut sentences.  [default: 256]"),
    no_special_option,
    o.count(
        "--skip-first",
        default=0,
        least=0,
        help="Never take the first N tokens, which often hold outliers.",
    ),
    o.seed_option,
    o.choice(
        "--run-dtype",
        values=["float32", "float64", "bfloat16", "float16"],
        help="Of the model's forward pass.",
    ),
)
