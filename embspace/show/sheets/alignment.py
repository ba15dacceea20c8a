"""How an alignment of two models looks: a line a group, and the layers' scores as heat maps."""

from collections.abc import Sequence
from typing import Any

from ...between.alignment import Alignment
from ...between.matching import LayerMatch
from ..view import Column, HeatMap, Sheet, View, joined, model_name, origin, settings_line
from ..views import sheet

MARKS = (
    "Numbers: mean |correlation| of all pairs of vectors of two layers. Shades (and digits 0 to 9, "
    "where numbers have no room): the same less the means of its row and column, which every match "
    "shares. In brackets (after * or as # where narrow): the one-to-one match."
)
Scores = Sequence[Sequence[float | None]]


@sheet.register
def _(result: Alignment) -> Sheet:
    a, b = (model_name(result.provenance[side]) for side in ("a", "b"))
    title = joined(f"A {a} ↔ B {b}", "layers matched by their parameters")
    about = joined(coverage_line(result.coverage), settings_line(result.settings))
    rows = tuple(_row(name, group.spaces()) for name, group in result.groups.items())
    maps = tuple(_maps(name, group.spaces()) for name, group in result.groups.items())
    origins = [
        f"{name}: {line}"
        for name, side in ((a, "a"), (b, "b"))
        for line in origin(result.provenance[side])
    ]
    views = (View(_columns(result), rows),)
    return Sheet(title, about, views, (MARKS, *result.notes, *origins), maps)


def coverage_line(coverage: dict[str, Any]) -> str:
    """How many tokens two vocabularies share."""
    if coverage["identical"] and not coverage["filters"]:
        return f"one vocabulary, {coverage['shared']} tokens"
    return (
        f"{coverage['shared']} shared tokens ({coverage['share_a']:.1%} of {coverage['of_a']}, "
        f"{coverage['share_b']:.1%} of {coverage['of_b']})"
    )


def _maps(name: str, spaces: dict[str, LayerMatch]) -> tuple[HeatMap, ...]:
    return tuple(
        HeatMap(
            f"{name}, {space} space",
            found.score,
            "A",
            "B",
            frozenset(found.pairs),
            centred(found.score),
        )
        for space, found in spaces.items()
    )


def centred(score: Scores) -> tuple[tuple[float | None, ...], ...]:
    """Scores less the means of their row and column, plus the mean of all.

    A one-to-one match takes one score of every row and column, so these means say nothing about
    which match is best; without them the match shows.
    """
    columns = list(zip(*score, strict=True))
    rows_mean, columns_mean = [_mean(row) for row in score], [_mean(one) for one in columns]
    mean = _mean([x for row in score for x in row])
    return tuple(
        tuple(
            None if x is None else x - rows_mean[i] - columns_mean[j] + mean
            for j, x in enumerate(row)
        )
        for i, row in enumerate(score)
    )


def _mean(scores: Sequence[float | None]) -> float:
    known = [x for x in scores if x is not None]
    return sum(known) / len(known) if known else 0.0


def _columns(result: Alignment) -> tuple[Column, ...]:
    """Group, then for each space how the match lies."""
    spaces = dict.fromkeys(space for group in result.groups.values() for space in group.spaces())
    columns = [Column("group", "text", "key")]
    for space in spaces:
        drop = 0 if space == "vocabulary" else 1
        columns += [
            Column(f"{space}: diagonal", "text", drop=0),
            Column("mean |l − l'|", "number", digits=3, drop=drop and 2),
            Column("p", "text", drop=drop),
        ]
    return tuple(columns)


def _row(name: str, spaces: dict[str, LayerMatch]) -> tuple[Any, ...]:
    cells: list[Any] = [name]
    for found in spaces.values():
        cells += [diagonal(found), found.distance, p_value(found.p)]
    return tuple(cells)


def diagonal(found: LayerMatch) -> str:
    """`10 of 12`."""
    return f"{found.n_diagonal} of {len(found.pairs)}" if found.pairs else "no layers"


def p_value(p: float | None) -> str:
    """A p-value with two digits."""
    return "" if p is None else f"{p:.2g}"
