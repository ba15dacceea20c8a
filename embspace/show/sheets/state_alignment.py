"""How a comparison of two models' states looks: a line a measure, and heat maps."""

from typing import Any

from ...between.state_alignment import StateAlignment
from ..view import Column, HeatMap, Sheet, View, joined, model_name, origin, shown
from ..views import sheet
from .alignment import diagonal, p_value

NAMES = {
    "cka": "debiased linear CKA",
    "procrustes": "rotation, held-out cosine",
    "least_squares": "least squares A → B, held-out r²",
}
MARKS = "In brackets (after * or as # where narrow): the one-to-one match. State 0: the embedding."


@sheet.register
def _(result: StateAlignment) -> Sheet:
    a, b = (model_name(result.provenance[side]) for side in ("a", "b"))
    title = joined(f"A {a} ↔ B {b}", "states on the same words")
    columns = (
        Column("measure", "text", "key"),
        Column("mean of match", "number"),
        Column("words shuffled", "number", "faint"),
        Column("diagonal", "text"),
        Column("mean |l − l'|", "number", digits=3, drop=1),
        Column("p", "text", drop=2),
    )
    rows = tuple(_row(result, name) for name in result.measures)
    maps = tuple(
        (HeatMap(NAMES[name], found.score, "A", "B", frozenset(found.pairs)),)
        for name, found in result.measures.items()
    )
    origins = [
        f"{name}: {line}"
        for name, side in ((a, "a"), (b, "b"))
        for line in origin(result.provenance[side])
    ]
    views = (View(columns, rows),)
    return Sheet(title, words_line(result), views, (MARKS, *result.notes, *origins), maps)


def words_line(result: StateAlignment) -> str:
    """n and d, what was held out, and what was left out."""
    counts = result.words
    left_out = [
        f"{counts['split']} words split differently" if counts["split"] else "",
        f"{counts['cut']} beyond the longest text" if counts["cut"] else "",
        f"{counts['first']} at a first position" if counts["first"] else "",
    ]
    return joined(
        f"n = {counts['n']} words of {shown(str(result.settings['text']))}",
        f"d = {result.widths[0]} and {result.widths[1]}",
        f"fits on {counts['fitted']}, scored on {counts['held_out']} of other texts",
        ", ".join(filter(None, left_out)) and "left out: " + ", ".join(filter(None, left_out)),
    )


def _row(result: StateAlignment, name: str) -> tuple[Any, ...]:
    found = result.measures[name]
    values = [found.score[i][j] for i, j in found.pairs]
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else None
    chance = result.shuffled[name]
    return NAMES[name], mean, chance, diagonal(found), found.distance, p_value(found.p)
