"""Which lines of a text are fitted and which are scored: no text is on both sides."""

import random
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..checking import index
from ..errors import TextError
from .text import Text, mark_of

HELD_OUT = 0.25  # the paper: 9,000 sentences to fit, 3,000 to score


@dataclass(frozen=True)
class Split:
    """Line numbers to fit and to score, and sentences about what was left out."""

    fit: tuple[int, ...]
    score: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def first(self, n: int, *, drawn: bool) -> "Split":
        """The first n lines to fit; where lines were drawn, as great a share of those to score."""
        n_score = round(n * len(self.score) / max(1, len(self.fit)))
        kept = self.score[: max(n_score, 1)] if drawn and n < len(self.fit) else self.score
        return replace(self, fit=self.fit[:n], score=kept)


def split(text: Text, share: float = HELD_OUT) -> Split:
    """Lines to fit and to score, as a text says or as its seed draws them.

    Args:
        text: With `fit` and `held_out` both given, they are taken as they are. With one given, the
            other is the rest, without sentences that are in it too. With neither, all different
            sentences in an order drawn by the seed, the last of them to score.
        share: Of the sentences that are scored where the text does not say; with 0 and lines to
            fit given, none is.

    Raises:
        TextError: Where a line is on both sides or does not exist, or nothing is left.
    """
    if isinstance(text.held_out, int | float):
        share = float(text.held_out)
    fit = _numbers(text.fit, text)
    score = None if isinstance(text.held_out, int | float) else _numbers(text.held_out, text)
    if fit is not None and score is not None:
        return _both(text, fit, score)
    if fit is not None:
        return Split(fit, ()) if share == 0 else Split(fit, *_rest(text, fit))
    if score is not None:
        rest, notes = _rest(text, score)
        return Split(rest, score, notes)
    if not 0 <= share < 1:
        raise TextError(f"the share to score must lie in 0 … 1, got {share}.")
    return _drawn(text, share, text.seed)


def _both(text: Text, fit: tuple[int, ...], score: tuple[int, ...]) -> Split:
    common = sorted(set(fit) & set(score))
    if common:
        raise TextError(
            f"line {common[0] + 1} is to be fitted and scored: held-out scores need other lines."
        )
    marks = {mark_of(text.lines[i]) for i in fit}
    twice = sum(mark_of(text.lines[i]) in marks for i in score)
    said = f"{twice} of the {len(score)} lines to score are repeated among those to fit."
    return Split(fit, score, (said,) if twice else ())


def _rest(text: Text, taken: Sequence[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Other lines whose text is none of the taken ones', each text once."""
    marks = {mark_of(text.lines[i]) for i in taken}
    numbers = set(taken)
    others = [i for i in range(len(text)) if i not in numbers]
    kept = different(text, others, marks)
    left_out = len(others) - len(kept)
    said = f"{left_out} lines were left out because their text occurs more than once."
    return tuple(kept), ((said,) if left_out else ())


def _drawn(text: Text, share: float, seed: int) -> Split:
    kept = different(text, range(len(text)))
    random.Random(seed).shuffle(kept)
    n_score = round(share * len(kept))
    if n_score == len(kept) or (share and not n_score):
        raise TextError(f"{len(kept)} different lines are too few to fit and to score.")
    cut = len(kept) - n_score
    left_out = len(text) - len(kept)
    said = f"{left_out} lines were left out because their text occurs more than once."
    return Split(tuple(kept[:cut]), tuple(kept[cut:]), (said,) if left_out else ())


def different(text: Text, lines: Iterable[int], marks: Collection[str] = ()) -> list[int]:
    """The lines whose text is not among the marks and has not been before."""
    seen, kept = set(marks), []
    for i in lines:
        mark = mark_of(text.lines[i])
        if mark not in seen:
            seen.add(mark)
            kept.append(i)
    return kept


def _numbers(lines: Iterable[int] | None, text: Text) -> tuple[int, ...] | None:
    if lines is None:
        return None
    found = tuple(index(i, len(text), "line", error=TextError) for i in lines)
    if not found:
        raise TextError("no line was chosen.")
    return found


def line_range(written: Any, text: Text) -> range:
    """Line numbers, counted from 0: `9000-11999` with both ends, or `9000:12000` as Python has it.

    Raises TextError.
    """
    said = re.sub(
        r"^\s*(\d{1,15})-(\d{1,15})\s*$", lambda m: f"{m[1]}:{int(m[2]) + 1}", str(written)
    )
    first, colon, last = said.partition(":")
    try:
        start, stop = int(first or 0), int(last or len(text))
    except ValueError as error:
        raise TextError(f"{said[:60]!r} is no range of lines: give FIRST-LAST.") from error
    if not colon or not 0 <= start < stop:
        raise TextError(f"{said[:60]!r} is no range of lines: give FIRST-LAST.")
    if stop > len(text):
        raise TextError(f"{text.source} has {len(text)} lines, so there is no {said}.")
    return range(start, stop)
