"""Lines to fit, to calibrate on and to score: no text is in two of them."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..checking import positive
from ..errors import TextError
from ..maps.imported import read_maps
from ..maps.maps import Maps
from ..maps.remembered import fitted
from ..maps.solve import Kind
from ..progress import Progress
from ..text.splits import different, split
from ..text.text import Text

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
    text: Text,
    maps: Maps | str | Path | None = None,
    *,
    rows: int | None = None,
    kind: Kind = "mat",
    pairs: str = "final",
    progress: Progress | None = None,
) -> Halves:
    """Half of the held-out lines to calibrate on, half to score, drawn by the text's seed.

    maps: fitted ones or a file; None fits some (kind, pairs) on the other lines. text: its held-out
    lines (default: all that the maps were not fitted on, or a third where they are fitted here);
    rows: at most so many in each half. Raises TextError, MapsError.
    """
    if maps is None:
        lines = split(text, HELD_OUT)
        first, second = _halved(lines.score, text.seed, rows)
        here = replace(text, fit=lines.fit, held_out=first)
        found, known = fitted(model, here, kind=kind, pairs=pairs, progress=progress)
        how = "remembered" if known else "fitted now"
        said = f"{found.kind}: {how}, on {found.about['rows']} other rows of {text.source}."
        notes = dict.fromkeys((*found.about.get("notes", ()), *lines.notes, said))
        return Halves(found, first, second, tuple(notes))
    found = maps.require(model) if isinstance(maps, Maps) else read_maps(maps, model)
    kept, notes = _unseen(text, found)
    return Halves(found, *_halved(kept, text.seed, rows), (*found.recalled, *notes))


def _halved(
    lines: tuple[int, ...], seed: int, rows: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if len(lines) < 2:
        raise TextError(f"{len(lines)} held-out lines are too few to calibrate on and to score.")
    drawn = random.Random(f"halves {seed}").sample(sorted(lines), len(lines))
    cut = len(drawn) // 2
    most = len(drawn) if rows is None else positive(rows, "rows")
    return tuple(sorted(drawn[:cut][:most])), tuple(sorted(drawn[cut:][:most]))


def _unseen(text: Text, maps: Maps) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The held-out lines (all), each text once, without those that the maps were fitted on."""
    asked = text.held_out if isinstance(text.held_out, tuple) else range(len(text))
    kept = different(text, asked, maps.about.get("marks") or ())
    left_out = len(asked) - len(kept)
    said = f"{left_out} lines that the maps were fitted on, or that came before, were left out."
    return tuple(kept), ((said,) if left_out else ())
