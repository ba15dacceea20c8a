"""How relations of heads look: the best head of each, where they lie, and one head's own."""

from pathlib import Path
from typing import Any

from ...evidence.relations import (
    SIGNIFICANT,
    HeadRelation,
    Relations,
    RelationScores,
    RelationsOfHead,
)
from ..figures import MAP, drawn
from ..report import HeatMap, Report, Table, number, plot, report, text, token
from ..wording import joined, model_name, origin, settings_line, shown, written

APART = 3  # relations that get a map each; of more, one map shows the largest share of any
EXAMPLES = 4  # pairs shown of those found and of those missed
P = f"{SIGNIFICANT:g}".removeprefix("0")
SHARES = (
    "promote: share of pairs (source, target) whose target is among the first k of the source's "
    "row of W_VO over the whole vocabulary; suppress: among the last k. p: as large a share in any "
    "head or relation where targets are permuted among the pairs."
)


@report.register
def _(result: Relations) -> Report:
    rows = sorted(result.relations.items(), key=lambda one: -_best(one[1]))
    columns = [
        text("relation", lambda one: shown(one[0]), "key"),
        number("pairs", lambda one: one[1].pairs, "faint"),
        number("k", lambda one: one[1].k, "faint", drop=3),
        text("best head", lambda one: _place(result, one[1])),
        text("promote", lambda one: f"{_best(one[1]):.2f}", "value"),
        text("p", lambda one: written(_at_best(one[1].p, one[1]), ".2g")),
        number(f"heads p < {P}", lambda one: one[1].n_significant(), drop=1),
        text("most suppress", lambda one: f"{max(map(max, one[1].suppress)):.2f}", "faint", drop=2),
    ]
    return Report(
        joined(model_name(result.provenance), "which relations do heads hold?"),
        joined(result.settings["reading"], settings_line(result.settings)),
        (Table.of(rows, columns),),
        (SHARES, *result.notes, *origin(result.provenance)),
        _maps(result),
    )


def _best(one: RelationScores) -> float:
    return _at_best(one.promote, one)


def _at_best(matrix: Any, one: RelationScores) -> float:
    row, column = one.best()
    return matrix[row][column]


def _place(result: Relations, one: RelationScores) -> str:
    row, column = one.best()
    return f"{result.layers[row]}.{result.heads[column]}"


def _maps(result: Relations) -> tuple[tuple[HeatMap, ...], ...]:
    """A map a relation of a few; of many, the largest share of any. Those beyond chance marked.

    None where rows and columns are not all layers and heads in order: a map numbers from 0.
    """
    whole = [*result.layers] == [*range(len(result.layers))]
    if not whole or [*result.heads] != [*range(len(result.heads))]:
        return ()
    said = f"in brackets: p < {P}"
    if len(result.relations) <= APART:
        return tuple(
            (_map(f"{shown(name)}: share promoted, {said}", [one]),)
            for name, one in result.relations.items()
        )
    every = list(result.relations.values())
    return ((_map(f"largest share promoted of any relation, {said}", every),),)


def _map(title: str, every: list[RelationScores]) -> HeatMap:
    rows, columns = range(len(every[0].promote)), range(len(every[0].promote[0]))
    values = tuple(tuple(max(one.promote[x][h] for one in every) for h in columns) for x in rows)
    marked = {
        (x, h) for x in rows for h in columns if any(one.p[x][h] < SIGNIFICANT for one in every)
    }
    return HeatMap(title, values, "layer", "head", frozenset(marked))


@report.register
def _(result: RelationsOfHead) -> Report:
    columns = [
        text("relation", lambda one: shown(one.relation), "key"),
        number("pairs", lambda one: one.pairs, "faint", drop=2),
        text("promote", lambda one: f"{one.promote:.2f}", "value"),
        text("p", lambda one: f"{one.p:.2g}"),
        text("suppress", lambda one: f"{one.suppress:.2f}", "faint", drop=3),
        token("found", lambda one: _examples(one, "found"), "promoted"),
        token("missed", lambda one: _examples(one, "missed"), "faint", drop=1),
    ]
    return Report(
        joined(model_name(result.provenance), f"relations of head {result.layer}.{result.head}"),
        joined(result.settings["reading"], settings_line(result.settings)),
        (Table.of(result.relations, columns),),
        (SHARES, *result.notes, *origin(result.provenance)),
    )


def _examples(one: HeadRelation, which: str) -> str:
    pairs = getattr(one, which)
    said = ", ".join(f"{a} → {b}" for a, b in pairs[:EXAMPLES])
    return said + (" …" if len(pairs) > EXAMPLES else "")


@plot.register
def _(result: Relations, path: str | Path) -> None:
    """Shares promoted, a panel a relation, the strongest nine; dots: beyond chance."""
    best = sorted(result.relations.items(), key=lambda one: -_best(one[1]))[:9]
    wide = min(3, len(best))
    high = -(-len(best) // wide)
    with drawn(path, 2.8 * wide + 0.6, 2.6 * high) as figure:
        panels = figure.subplots(high, wide, squeeze=False).flatten()
        image = None
        for axes, (name, one) in zip(panels, best, strict=False):
            image = axes.imshow(one.promote, cmap=MAP, vmin=0, vmax=1, aspect="auto")
            for x, row in enumerate(one.p):
                for h, p in enumerate(row):
                    if p < SIGNIFICANT:
                        axes.plot([h], [x], "o", color="white", markersize=3)
            axes.set_title(shown(name), fontsize=8)
            axes.set_xticks(range(len(result.heads)), map(str, result.heads), fontsize=6)
            axes.set_yticks(range(len(result.layers)), map(str, result.layers), fontsize=6)
        for axes in panels[len(best) :]:
            axes.set_axis_off()
        figure.supxlabel("head", fontsize=9)
        figure.supylabel("layer", fontsize=9)
        if image is not None:
            figure.colorbar(image, ax=panels.tolist(), label="share of pairs promoted")
