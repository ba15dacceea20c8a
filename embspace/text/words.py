"""The words of a text as two tokenizers see them: paired by character span, never by index."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..errors import TextError
from .passages import Encoder, Passage

if TYPE_CHECKING:
    from ..weights.model import Model
    from .text import Text

WORD = re.compile(r"\w+|[^\w\s]")
Span = tuple[int, int]


@dataclass(frozen=True)
class PairedWords:
    """Passes of two models over the same texts, keeping one position a word, in the same order.

    Row i of either model's states belongs to the last token of the same word. n_split: words that
    begin or end inside a token of either tokenizer; n_cut: words beyond either model's longest
    text; n_first: words at a pass's first position, whose states are outliers in many models;
    n_unread: texts of which nothing is left.
    """

    a: tuple[Passage, ...]
    b: tuple[Passage, ...]
    words: tuple[str, ...]
    n_split: int
    n_cut: int
    n_first: int
    n_unread: int

    def __len__(self) -> int:
        return len(self.words)


def paired_words(a: "Model", b: "Model", text: "Text", n: int) -> PairedWords:
    """At least n words of a text, if it has so many, at which both models' states can be taken.

    Sentences are drawn by the text's seed until they have n words, all of which are taken. A word
    is a run of letters and digits, or a single other character. Both models read whole sentences,
    nothing masked. Raises TextError without tokenizers that report spans, or without words.
    """
    encoders = [Encoder(model, max_tokens=text.max_tokens) for model in (a, b)]
    found, dropped = [], [0, 0, 0, 0]
    order = torch.randperm(len(text), generator=torch.Generator().manual_seed(text.seed))
    for line in order.tolist():
        sentence = text.lines[line]
        sides = [_read(encoder, sentence) for encoder in encoders]
        kept = list(_common(sentence, sides[0], sides[1], dropped))
        dropped[3] += not kept
        found += [(line, *places, word) for *places, word in kept]
        if len(found) >= n:
            break
    if not found:
        raise TextError(f"{a.name} and {b.name} share no word of {text.source}.")
    passes = [_passes(encoder, text, found, at) for at, encoder in enumerate(encoders, 1)]
    return PairedWords(passes[0], passes[1], tuple(word for *_, word in found), *dropped)


@dataclass(frozen=True)
class _Read:
    """Where the tokens of one text begin and end, the last token that is kept, and its place."""

    begins: dict[int, int]
    ends: dict[int, int]
    n_kept: int
    first: int


def _read(encoder: Encoder, text: str) -> _Read:
    ids, spans = _spans(encoder, text)
    framed = encoder.framed(ids)
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for place, (start, end) in enumerate(spans[framed.n_typed :]):
        if start == end:
            continue  # a token of no character (a mark that the tokenizer adds)
        start += len(text[start:end]) - len(text[start:end].lstrip())  # a space before the word
        begins.setdefault(start, place)
        ends[end] = place
    return _Read(begins, ends, framed.n, framed.first)


def _spans(encoder: Encoder, text: str) -> tuple[tuple[int, ...], list[Span]]:
    """Ids of a text and the characters that each stands for. Raises TextError."""
    tokenizer = encoder.tokenizer
    assert tokenizer is not None
    if not getattr(tokenizer, "is_fast", False):
        raise TextError(
            f"the tokenizer of {encoder.model.name} does not say which characters a token stands "
            "for, so its words cannot be paired with another's."
        )
    read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return tuple(read["input_ids"]), [(int(s), int(e)) for s, e in read["offset_mapping"]]


def _common(text: str, a: _Read, b: _Read, dropped: list[int]) -> Iterator[tuple[int, int, str]]:
    """Places of the last tokens of the words that both tokenizers cut out; counts the rest."""
    for match in WORD.finditer(text):
        start, end = match.span()
        if not all(start in side.begins and end in side.ends for side in (a, b)):
            dropped[0] += 1
            continue
        places = [side.ends[end] for side in (a, b)]
        if any(place >= side.n_kept for place, side in zip(places, (a, b), strict=True)):
            dropped[1] += 1
        elif any(place + side.first == 0 for place, side in zip(places, (a, b), strict=True)):
            dropped[2] += 1
        else:
            yield places[0], places[1], match.group()


def _passes(
    encoder: Encoder, text: "Text", chosen: Sequence[tuple[int, int, int, str]], at: int
) -> tuple[Passage, ...]:
    """One pass a text that has a chosen word, the positions of its words in it."""
    by_line: dict[int, list[int]] = {}
    for row in chosen:
        by_line.setdefault(row[0], []).append(int(row[at]))
    passes = []
    for line, places in by_line.items():
        framed = encoder.framed(encoder.encode([text.lines[line]])[0])
        passes.append(Passage(framed.ids, tuple(framed.first + p for p in places), line))
    return tuple(passes)
