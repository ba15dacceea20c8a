"""Which lines of a text are fitted and which are scored: no text is on both sides."""

import random
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..checking import index
from ..checking import seed as checked_seed
from ..errors import TextError
from .corpus import Corpus, mark_of

HELD_OUT = 0.25  # the paper: 9,000 sentences to fit, 3,000 to score


@dataclass(frozen=True)
class Split:
    """Line numbers to fit and to score, and sentences about what was left out."""

    fit: tuple[int, ...]
    score: tuple[int, ...]
    notes: tuple[str, ...] = ()


def split_lines(
    corpus: Corpus,
    *,
    fit: Iterable[int] | None = None,
    score: Iterable[int] | None = None,
    share: float = HELD_OUT,
    seed: int = 0,
) -> Split:
    """Lines to fit and to score.

    Both given: as they are. One given: the other is the rest, without texts that are in it too
    (nothing, where the lines to fit are given and `share` is 0).
    None given: all different lines in an order drawn by `seed`, the last `share` of them to score.
    Raises TextError where a line is on both sides, does not exist, or nothing is left.
    """
    given = {name: _numbers(lines, corpus) for name, lines in (("fit", fit), ("score", score))}
    if given["fit"] is not None and given["score"] is not None:
        return _both(corpus, given["fit"], given["score"])
    if given["fit"] is not None and share == 0:
        return Split(given["fit"], ())
    if given["fit"] is not None:
        return Split(given["fit"], *_rest(corpus, given["fit"]))
    if given["score"] is not None:
        rest, notes = _rest(corpus, given["score"])
        return Split(rest, given["score"], notes)
    if not 0 <= share < 1:
        raise TextError(f"the share to score must lie in 0 … 1, got {share}.")
    return _drawn(corpus, share, checked_seed(seed))


def _both(corpus: Corpus, fit: tuple[int, ...], score: tuple[int, ...]) -> Split:
    common = sorted(set(fit) & set(score))
    if common:
        raise TextError(
            f"line {common[0] + 1} is to be fitted and scored: held-out scores need other lines."
        )
    marks = {mark_of(corpus.lines[i]) for i in fit}
    twice = sum(mark_of(corpus.lines[i]) in marks for i in score)
    said = f"{twice} of the {len(score)} lines to score are repeated among those to fit."
    return Split(fit, score, (said,) if twice else ())


def _rest(corpus: Corpus, taken: Sequence[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Other lines whose text is none of the taken ones', each text once."""
    marks = {mark_of(corpus.lines[i]) for i in taken}
    numbers = set(taken)
    others = [i for i in range(len(corpus)) if i not in numbers]
    kept = different(corpus, others, marks)
    left_out = len(others) - len(kept)
    said = f"{left_out} lines were left out because their text occurs more than once."
    return tuple(kept), ((said,) if left_out else ())


def _drawn(corpus: Corpus, share: float, seed: int) -> Split:
    kept = different(corpus, range(len(corpus)))
    random.Random(seed).shuffle(kept)
    n_score = round(share * len(kept))
    if n_score == len(kept) or (share and not n_score):
        raise TextError(f"{len(kept)} different lines are too few to fit and to score.")
    cut = len(kept) - n_score
    left_out = len(corpus) - len(kept)
    said = f"{left_out} lines were left out because their text occurs more than once."
    return Split(tuple(kept[:cut]), tuple(kept[cut:]), (said,) if left_out else ())


def different(corpus: Corpus, lines: Iterable[int], marks: Collection[str] = ()) -> list[int]:
    """The lines whose text is not among the marks and has not been before."""
    seen, kept = set(marks), []
    for i in lines:
        mark = mark_of(corpus.lines[i])
        if mark not in seen:
            seen.add(mark)
            kept.append(i)
    return kept


def _numbers(lines: Iterable[int] | None, corpus: Corpus) -> tuple[int, ...] | None:
    if lines is None:
        return None
    found = tuple(index(i, len(corpus), "line", error=TextError) for i in lines)
    if not found:
        raise TextError("no line was chosen.")
    return found


def line_range(text: Any, corpus: Corpus) -> range:
    """Line numbers, counted from 0: `9000-11999` with both ends, or `9000:12000` as Python has it.

    Raises TextError.
    """
    text = re.sub(r"^\s*(\d{1,15})-(\d{1,15})\s*$", lambda m: f"{m[1]}:{int(m[2]) + 1}", str(text))
    first, colon, last = text.partition(":")
    try:
        start, stop = int(first or 0), int(last or len(corpus))
    except ValueError as error:
        raise TextError(f"{str(text)[:60]!r} is no range of lines: give FIRST-LAST.") from error
    if not colon or not 0 <= start < stop:
        raise TextError(f"{str(text)[:60]!r} is no range of lines: give FIRST-LAST.")
    if stop > len(corpus):
        raise TextError(f"{corpus.source} has {len(corpus)} lines, so there is no {text}.")
    return range(start, stop)
