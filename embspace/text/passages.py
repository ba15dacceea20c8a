"""Sentences as token ids, and the positions at which a model's states are taken."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checking import index, is_unicode, positive
from ..errors import ModelError, TextError
from ..messages import first_line
from .sources import require_characters
from .text import Text

if TYPE_CHECKING:
    from ..weights.model import Model

MAX_TOKENS = 256


@dataclass(frozen=True)
class Passage:
    """Token ids of one forward pass, the positions in it to take, and the line it is from."""

    ids: tuple[int, ...]
    keep: tuple[int, ...]
    line: int


@dataclass(frozen=True)
class Passages:
    """The passes to run over a text; how the positions were chosen, and what was left out."""

    passages: tuple[Passage, ...]
    n_cut: int
    n_empty: int
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def n_rows(self) -> int:
        """How many states will be taken of each layer."""
        return sum(len(p.keep) for p in self.passages)

    @property
    def n_tokens(self) -> int:
        """Tokens that the model will read, padding aside."""
        return sum(len(p.ids) for p in self.passages)

    def of_lines(self, lines: Iterable[int]) -> "Passages":
        """Those of some lines only."""
        wanted = set(lines)
        kept = tuple(p for p in self.passages if p.line in wanted)
        return Passages(kept, self.n_cut, self.n_empty, self.settings)

    def notes(self) -> tuple[str, ...]:
        """What was cut or left out, one sentence each."""
        found = []
        if self.n_cut:
            found.append(f"{self.n_cut} texts were cut to {self.settings['max_tokens']} tokens.")
        if self.n_empty:
            found.append(f"{self.n_empty} texts had no token to take and were left out.")
        return tuple(found)


class Encoder:
    """A model's tokenizer, with what it puts around a text and the longest text the model takes."""

    def __init__(
        self, model: "Model", *, max_tokens: int | None = None, special: bool = True
    ) -> None:
        _require_one_way(model)
        self.model, self.tokenizer = model, model.vocabulary.tokenizer
        if self.tokenizer is None:
            raise TextError(f"{model.name} has no tokenizer, so it can read no text.")
        self.prefix, self.suffix = self._around() if special else ((), ())
        self.special = special
        self.limit = model.n_positions
        self.max_tokens = self._room(max_tokens)

    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The special tokens that the tokenizer itself puts before and after a text."""
        for text in self._probes():
            try:
                found = self.tokenizer(text, return_special_tokens_mask=True)  # type: ignore[misc]
            except Exception:  # the vocabulary lacks it, and has no unknown token: the next one
                continue
            ids, added = found["input_ids"], found["special_tokens_mask"]
            if not all(added):
                first, last = added.index(0), len(added) - added[::-1].index(0)
                return tuple(ids[:first]), tuple(ids[last:])
        raise TextError(f"the tokenizer of {self.model.name} turns every text into nothing.")

    def _probes(self) -> Iterator[str]:
        """Texts that show what is put around one: a letter, else tokens of the vocabulary."""
        yield "a"
        vocabulary = self.model.vocabulary
        for i, text in enumerate(vocabulary.texts):
            if text and i not in vocabulary.special and is_unicode(text):
                yield text

    def _room(self, max_tokens: int | None) -> int:
        """Tokens a pass may have. Raises TextError where the model has not so many positions."""
        wanted = MAX_TOKENS if max_tokens is None else positive(max_tokens, "max_tokens")
        if self.limit is not None and wanted > self.limit:
            if max_tokens is not None:
                raise TextError(
                    f"{self.model.name} takes {self.limit} tokens at most, not {max_tokens}."
                )
            wanted = self.limit
        if wanted <= len(self.prefix) + len(self.suffix):
            raise TextError(f"{wanted} tokens leave no room for a text beside the special ones.")
        return wanted

    def encode(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Ids of each text without special tokens, uncut. Raises TextError for half a character,
        and for an id that the model's embedding does not have."""
        assert self.tokenizer is not None
        require_characters(texts)
        try:
            found = self.tokenizer(
                list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False
            )["input_ids"]
        except Exception as error:  # a word that it does not know, and no unknown token
            raise TextError(
                f"the tokenizer of {self.model.name} cannot read the text: {first_line(error)}."
            ) from error
        rows = self.model.checkpoint.shape(f"{self.model.embedding_path}.weight")[0]
        for ids in found:
            if ids and max(ids) >= rows:
                raise TextError(
                    f"the tokenizer gives id {max(ids)}, but the embedding of {self.model.name} "
                    f"has {rows} rows: they do not belong together."
                )
        return [tuple(ids) for ids in found]

    def framed(self, ids: tuple[int, ...]) -> "Framed":
        """A text with its special tokens, cut to fit.

        One that begins or ends with them already gets no second ones.
        """
        prefix, suffix = self.prefix, self.suffix
        typed = len(prefix) if prefix and ids[: len(prefix)] == prefix else 0
        ids = ids[typed:]
        if suffix and ids[-len(suffix) :] == suffix:
            ids = ids[: -len(suffix)]
        kept = ids[: self.max_tokens - len(prefix) - len(suffix)]
        whole = (*prefix, *kept, *suffix)
        return Framed(whole, len(prefix), len(kept), len(kept) < len(ids), typed)


@dataclass(frozen=True)
class Framed:
    """Ids of a text as the model reads it; its own tokens are n from `first` on.

    n_typed: special tokens that the text itself began with, which are not counted as its own.
    """

    ids: tuple[int, ...]
    first: int
    n: int
    cut: bool
    n_typed: int = 0


def passages(model: "Model", text: Text, lines: Iterable[int] | None = None) -> Passages:
    """What to run of a text, and where to take states.

    A causal model reads a sentence up to the last position taken; a masked model reads all of it,
    once for each position, with the mask token there. Random positions are drawn over all lines in
    order, so that a choice of lines changes no position.

    Args:
        model: Whose tokenizer reads the text.
        text: The sentences, and how positions are taken of them.
        lines: Numbers of the lines to run (all).

    Raises:
        TextError: Where no line has a token to take, or a setting does not fit the model.
    """
    encoder = Encoder(model, max_tokens=text.max_tokens, special=text.special)
    chosen = range(len(text)) if lines is None else sorted(set(lines))
    for i in chosen:
        index(i, len(text), "line", error=TextError)
    pick = _picker(text)
    mask_id = None if model.family.causal else _mask_id(model)
    found: list[Passage] = []
    n_cut = n_empty = 0
    wanted = set(chosen)
    every = range(max(wanted, default=-1) + 1) if text.positions == "random" else chosen
    for start in range(0, len(every), 1024):
        part = every[start : start + 1024]
        encoded = encoder.encode([text.lines[i] for i in part])
        for i, ids in zip(part, encoded, strict=True):
            framed = encoder.framed(ids)
            places = pick(i, framed.n)  # drawn for lines that are not wanted too
            if i not in wanted:
                continue
            n_cut += framed.cut
            n_empty += not places
            found += _passes(framed.ids, [framed.first + p for p in places], i, mask_id)
    if not found:
        raise TextError("no text has a token to take.")
    settings = text.record | {"max_tokens": encoder.max_tokens}
    return Passages(tuple(found), n_cut, n_empty, settings)


def _passes(
    ids: tuple[int, ...], places: list[int], line: int, mask_id: int | None
) -> list[Passage]:
    if not places:
        return []
    if mask_id is None:
        return [Passage(ids[: places[-1] + 1], tuple(places), line)]
    return [Passage((*ids[:p], mask_id, *ids[p + 1 :]), (p,), line) for p in places]


def _picker(text: Text):
    """A function from a line's number and its count of tokens to the positions to take."""
    positions, seed, skip = text.positions, text.seed, text.skip_first
    if positions == "all":
        return lambda line, n: list(range(skip, n))
    if isinstance(positions, str) and positions != "random":
        raise TextError(f"unknown positions {positions[:80]!r}: use random, all or a number.")
    if positions == "random":
        one = random.Random(seed)
        return lambda line, n: [skip + one.randrange(n - skip)] if n > skip else []
    if isinstance(positions, int):
        many = positive(positions, "positions")
        return lambda line, n: _several(random.Random(f"{seed} {line}"), many, skip, n)
    if not isinstance(positions, Sequence):
        raise TextError(f"unknown positions {str(positions)[:80]}: use random, all or a number.")
    given = list(positions)
    if len(given) != len(text):
        raise TextError(f"{len(given)} positions were given for {len(text)} lines.")
    return lambda line, n: _one_given(given[line], line, n)


def _several(rng: random.Random, many: int, skip: int, n: int) -> list[int]:
    left = range(skip, n)
    return sorted(rng.sample(left, min(many, len(left))))


def _one_given(place: int | None, line: int, n: int) -> list[int]:
    if place is None:
        return []
    if not 0 <= place < n:
        raise TextError(f"line {line} has {n} tokens, so there is no position {place} in it.")
    return [place]


def read_positions(path: Path, lines: Sequence[int], n_lines: int) -> list[int | None]:
    """One index a line of a file: for every line of the text, or for the chosen ones only.

    Raises TextError for anything else.
    """
    try:
        found = [int(row) for row in path.read_text(encoding="utf8").split()]
    except (OSError, ValueError) as error:
        shown, reason = str(path)[:200], first_line(error)
        raise TextError(f"{shown} holds no list of positions: {reason}.") from error
    if len(found) == len(lines):
        places: list[int | None] = [None] * n_lines
        for line, place in zip(lines, found, strict=True):
            places[line] = place
        return places
    if len(found) > max(lines, default=0):
        return [*found, *[None] * n_lines][:n_lines]
    raise TextError(
        f"{path} holds {len(found)} positions, for neither the {len(lines)} chosen lines nor the "
        f"{n_lines} of the text."
    )


def _require_one_way(model: "Model") -> None:
    """Raise ModelError for a decoder whose tokens also see what comes after them."""
    config: Any = model.config
    asked = getattr(config, "use_bidirectional_attention", False)
    asked = asked or not getattr(config, "is_causal", True)
    if model.family.causal and (asked or model.family.both_ways):
        raise ModelError(
            f"{model.name} looks both ways but fills no mask: its states depend on the words after "
            "them and predict none, so only its weights are read."
        )


def _mask_id(model: "Model") -> int:
    tokenizer = model.vocabulary.tokenizer
    found = getattr(tokenizer, "mask_token_id", None)
    if found is None:
        raise TextError(f"{model.name} is a masked model, but its tokenizer has no mask token.")
    return int(found)
