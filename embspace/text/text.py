"""Text: sentences for a model to read, where they are from, and how states are taken of them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..checking import seed as checked_seed
from ..checking import whole
from ..errors import TextError
from ..weights.aliases import bundled
from .sources import DEFAULT_LINES, SAMPLE_LINES, sentences

if TYPE_CHECKING:
    from ..weights.model import Model

WIKIPEDIA = "hub:wikimedia/wikipedia@20231101.en#train"
Positions: TypeAlias = "str | int | Sequence[int | None]"


@dataclass(frozen=True)
class Text:
    """Sentences, and everything that decides which of a model's states they give.

    The two line sets say what is fitted and what is scored; where one is not given, it is drawn
    from the other lines by the seed (see `splits`). No text is ever in both.

    Args:
        lines: The sentences, in order, none empty.
        source: A name for where they are from.
        positions: "random" (one a sentence [DIN §3]), a number (so many a sentence), "all", or
            one index a sentence, counted from its first token that is not special.
        max_tokens: Sentences are cut to so many tokens (256, or what the model takes).
        special: Whether the tokenizer puts its special tokens around a sentence.
        skip_first: So many first tokens of a sentence are never taken; they often hold outliers.
        seed: Of the positions and of the lines that are drawn.
        fit: Numbers of the lines to fit, from 0.
        held_out: Numbers of the lines to score, or their share of all.

    Raises:
        TextError: For settings that are none.

    Example:
        >>> text = Text.read(["Cats sleep.", "", "Dogs bark."], positions="all")
        >>> len(text), text.source
        (2, 'given sentences')
    """

    lines: tuple[str, ...]
    source: str
    positions: Positions = "random"
    max_tokens: int | None = None
    special: bool = True
    skip_first: int = 0
    seed: int = 0
    fit: tuple[int, ...] | None = None
    held_out: tuple[int, ...] | float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.lines, str):
            raise TextError("lines are a list of sentences, not one text: give [text].")
        object.__setattr__(self, "seed", checked_seed(self.seed))  # numpy's numbers become Python's
        for name in ("positions", "fit", "held_out"):
            given: Any = getattr(self, name)
            if hasattr(given, "tolist"):  # an array, a tensor or one of their numbers
                object.__setattr__(self, name, given.tolist())
        if whole(self.skip_first, "skip_first") < 0:
            raise TextError(f"skip_first must be at least 0, got {self.skip_first}.")
        for name in ("fit", "held_out"):  # any iterable of numbers is taken
            given = getattr(self, name)
            if name == "fit" and isinstance(given, int | float):
                raise TextError(f"fit must be a list of line numbers, not {given}.")
            if given is not None and not isinstance(given, int | float | tuple):
                object.__setattr__(self, name, tuple(given))

    def __len__(self) -> int:
        return len(self.lines)

    @classmethod
    def read(
        cls,
        source: "AnyText",
        *,
        column: str | None = None,
        limit: int | None = None,
        **settings: Any,
    ) -> "Text":
        """The sentences of a source, as `sources.sentences` reads them; a `Text` as it is.

        Args:
            source: A file, a folder, a table, `sample:reference`, `hub:NAME`, or a list of strings.
            column: Of a table.
            limit: Read no more than so many sentences.
            **settings: Fields of `Text`: positions, max_tokens, special, skip_first, seed, …

        Raises:
            TextError: Where nothing can be read.
            TypeError: For a setting that `Text` does not have.
        """
        if isinstance(source, Text):
            return replace(source, **settings) if settings else source
        return cls(*sentences(source, column=column, limit=limit), **settings)

    @classmethod
    def of(cls, source: "AnyText | None", model: "Model", limit: int | None = None) -> "Text":
        """A text as a function was given it; None stands for what suits the model.

        That is our own sentences for a bundled sample, else sentences of Wikipedia from the Hub.
        Raises TextError where that cannot be reached.
        """
        if source is not None:
            return cls.read(source, limit=limit)
        if bundled(model.name) is not None:
            return cls.read("sample:reference", limit=limit or SAMPLE_LINES)
        try:
            return cls.read(WIKIPEDIA, limit=limit or DEFAULT_LINES)
        except TextError as error:
            raise TextError(
                "no text was given and Wikipedia cannot be had from the Hub: give text=FILE, one "
                f"sentence a line. {error}"
            ) from error

    @cached_property
    def digest(self) -> str:
        """16 hex digits of the sentences themselves, wherever they lie."""
        return hashlib.sha256("\n".join(self.lines).encode("utf8", "replace")).hexdigest()[:16]

    @property
    def names_lines(self) -> bool:
        """Whether some lines are named to be fitted or scored, rather than drawn."""
        return self.fit is not None or isinstance(self.held_out, tuple)

    @property
    def record(self) -> dict[str, Any]:
        """What a result says of its text: source, hash, positions, seed and the other settings."""
        given = isinstance(self.positions, str | int)
        return {
            "text": self.source,
            "text_hash": self.digest,
            "positions": self.positions if given else "given",
            "seed": self.seed,
            "special_tokens": self.special,
            "skip_first": self.skip_first,
        }

    def marks(self, chosen: Iterable[int]) -> list[str]:
        """A short hash of each of some lines, by which a later run knows them again."""
        return [mark_of(self.lines[i]) for i in chosen]


AnyText: TypeAlias = Text | str | Path | Sequence[str]


def mark_of(line: str) -> str:
    """12 hex digits of one sentence."""
    return hashlib.sha256(line.encode("utf8", "replace")).hexdigest()[:12]
