"""Lines to fit, to calibrate on and to score: no text is in two of them."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checking import known as check_known
from ..checking import positive
from ..errors import TextError
from ..maps.fit import Progress
from ..maps.maps import Maps
from ..maps.remembered import FIT_OPTIONS, fitted
from ..text.corpus import Corpus, mark_of
from ..text.splits import split_lines

if TYPE_CHECKING:
    from ..weights.model import Model

HELD_OUT = 1 / 3  # of the lines, halved


@dataclass(frozen=True)
class Halves:
    """Maps, and lines that they were not fitted on: some to calibrate on, others to score."""

    maps: Maps
    calibration: tuple[int, ...]
    scoring: tuple[int, ...]
    notes: tuple[str, ...] = ()


def halves(
    model: "Model",
    corpus: Corpus,
    maps: Maps | str | Path | None = None,
    *,
    lines: Iterable[int] | None = None,
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Halves:
    """Half of the held-out lines to calibrate on, half to score, drawn by `seed`.

    maps: fitted ones or a file; None fits them on the other lines (options: of `fit`). lines: the
    held-out ones (default: all that the maps were not fitted on, or a third where they are fitted
    here); rows: at most so many in each half. Raises TextError, MapsError, and TypeError for an
    option that `fit` does not take.
    """
    check_known(options, FIT_OPTIONS, "halves")
    if maps is None:
        split = split_lines(corpus, score=lines, share=HELD_OUT, seed=seed)
        first, second = _halved(split.score, seed, rows)
        found, known = fitted(
            model,
            corpus,
            lines=split.fit,
            held_out=first,
            seed=seed,
            progress=progress,
            **options,
        )
        how = "remembered" if known else "fitted now"
        said = f"{found.kind}: {how}, on {found.about['rows']} other rows of {corpus.source}."
        notes = dict.fromkeys((*found.about.get("notes", ()), *split.notes, said))
        return Halves(found, first, second, tuple(notes))
    found = maps.require(model) if isinstance(maps, Maps) else Maps.load(maps, model)
    kept, notes = _unseen(corpus, found, lines)
    return Halves(found, *_halved(kept, seed, rows), (*found.recalled, *notes))


def _halved(
    lines: tuple[int, ...], seed: int, rows: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if len(lines) < 2:
        raise TextError(f"{len(lines)} held-out lines are too few to calibrate on and to score.")
    drawn = random.Random(f"halves {seed}").sample(sorted(lines), len(lines))
    cut = len(drawn) // 2
    most = len(drawn) if rows is None else positive(rows, "rows")
    return tuple(sorted(drawn[:cut][:most])), tuple(sorted(drawn[cut:][:most]))


def _unseen(
    corpus: Corpus, maps: Maps, lines: Iterable[int] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The lines, each text once, without those that the maps were fitted on."""
    marks: set[str] = set(maps.about.get("marks") or ())
    asked = range(len(corpus)) if lines is None else list(lines)
    kept: list[int] = []
    for i in asked:
        mark = mark_of(corpus.lines[i])
        if mark not in marks:
            marks.add(mark)
            kept.append(i)
    left_out = len(asked) - len(kept)
    said = f"{left_out} lines that the maps were fitted on, or that came before, were left out."
    return tuple(kept), ((said,) if left_out else ())
