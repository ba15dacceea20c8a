"""How an alignment of two models looks: a line a group or measure, heat maps, panels. [DAR] §5.1"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...between.alignment import Alignment
from ...between.matching import LayerMatch
from ...between.state_alignment import StateAlignment
from ..figures import MAP, drawn, whole_numbers
from ..report import Column, HeatMap, Report, Table, number, plot, report, text
from ..wording import clipped, joined, model_name, origins, settings_line, shown, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure

NAMES = {
    "cka": "debiased linear CKA",
    "procrustes": "rotation, held-out cosine",
    "least_squares": "least squares A → B, held-out r²",
}
MARKED = "In brackets (as # where narrow): the one-to-one match."
PARAMETERS = (
    "Numbers: mean |correlation| of all pairs of vectors of two layers. Shades (and digits 0 to 9, "
    "where numbers have no room): the same less the means of its row and column, which every match "
    f"shares. {MARKED}"
)
STATES = f"{MARKED} State 0: the embedding."
PANEL = 2.6  # inches
NAME = 28  # cells of a model's name beside an axis
Scores = Sequence[Sequence[float | None]]


@report.register
def _(result: Alignment) -> Report:
    a, b = (model_name(result.provenance[side]) for side in ("a", "b"))
    groups = {name: group.spaces() for name, group in result.groups.items()}
    maps = tuple(
        tuple(_heat_map(f"{name}, {s} space", m, centred(m.score)) for s, m in spaces.items())
        for name, spaces in groups.items()
    )
    columns: list[Column] = [text("group", lambda row: row[0], "key")]
    for space in dict.fromkeys(space for spaces in groups.values() for space in spaces):
        columns += _match_columns(space, drop=0 if space == "vocabulary" else 1)
    return Report(
        joined(f"A {a} ↔ B {b}", "layers matched by their parameters"),
        joined(coverage_line(result.coverage), settings_line(result.settings)),
        (Table.of(groups.items(), columns),),
        (PARAMETERS, *result.notes, *origins(result.provenance, a=a, b=b)),
        maps,
    )


def _match_columns(space: str, drop: int) -> list[Column]:
    """How the match of one space lies, of rows (group, spaces); empty where there is none."""

    def of(found: Any, cell: Any) -> Any:
        return cell(found[1][space]) if space in found[1] else None

    return [
        text(f"{space}: diagonal", lambda row: of(row, diagonal)),
        number("mean |l − l'|", lambda row: of(row, lambda m: m.distance), drop=2 * drop, digits=3),
        text("p", lambda row: of(row, lambda m: p_value(m.p)), drop=drop),
    ]


def _heat_map(title: str, found: LayerMatch, shades: Any = ()) -> HeatMap:
    title += one_of_many(found)
    return HeatMap(title, found.score, "A", "B", frozenset(found.pairs), shades)


def coverage_line(coverage: dict[str, Any]) -> str:
    """How many tokens two vocabularies share."""
    if coverage["identical"] and not coverage["filters"]:
        return f"one vocabulary, {coverage['shared']} tokens"
    return (
        f"{coverage['shared']} shared tokens ({coverage['share_a']:.1%} of {coverage['of_a']}, "
        f"{coverage['share_b']:.1%} of {coverage['of_b']})"
    )


def centred(score: Scores) -> tuple[tuple[float | None, ...], ...]:
    """Scores less the means of their row and column, plus the mean of all.

    A one-to-one match takes one score of every row and column, so these means say nothing about
    which match is best; without them the match shows.
    """
    rows = [_mean(row) for row in score]
    columns = [_mean(one) for one in zip(*score, strict=True)]
    mean = _mean([x for row in score for x in row])
    return tuple(
        tuple(None if x is None else x - rows[i] - columns[j] + mean for j, x in enumerate(row))
        for i, row in enumerate(score)
    )


def _mean(scores: Sequence[float | None]) -> float:
    known = [x for x in scores if x is not None]
    return sum(known) / len(known) if known else 0.0


def diagonal(found: LayerMatch) -> str:
    """`10 of 12`; `about 1.8 of 12` where the match is one of several, `all tied` of all."""
    n = len(found.pairs)
    if not n:
        return "no layers"
    if found.diagonal is None:
        return "all tied"
    return (
        f"{found.n_diagonal} of {n}" if found.unique else f"about {found.diagonal * n:.1f} of {n}"
    )


def one_of_many(found: LayerMatch) -> str:
    """What a map's title adds where its match is not the only one."""
    return "" if found.unique else " (match: one of many)"


def p_value(p: float | None) -> str:
    """A p-value with two digits."""
    return written(p, ".2g")


@report.register
def _(result: StateAlignment) -> Report:
    a, b = (model_name(result.provenance[side]) for side in ("a", "b"))
    columns = (
        text("measure", lambda of: NAMES[of[0]], "key"),
        number("mean of match", lambda of: _mean_of_match(of[1])),
        number("words shuffled", lambda of: result.shuffled[of[0]], "faint"),
        text("diagonal", lambda of: diagonal(of[1])),
        number("mean |l − l'|", lambda of: of[1].distance, drop=1, digits=3),
        text("p", lambda of: p_value(of[1].p), drop=2),
    )
    return Report(
        joined(f"A {a} ↔ B {b}", "states on the same words"),
        words_line(result),
        (Table.of(result.measures.items(), columns),),
        (STATES, *result.notes, *origins(result.provenance, a=a, b=b)),
        tuple((_heat_map(NAMES[name], found),) for name, found in result.measures.items()),
    )


def _mean_of_match(found: LayerMatch) -> float | None:
    known = [v for i, j in found.pairs if (v := found.score[i][j]) is not None]
    return sum(known) / len(known) if known else None


def words_line(result: StateAlignment) -> str:
    """n and d, what was held out, and what was left out."""
    counts = result.words
    left_out = [
        f"{counts['split']} words split differently" if counts["split"] else "",
        f"{counts['cut']} beyond the longest text" if counts["cut"] else "",
        f"{counts['first']} at a first position" if counts["first"] else "",
    ]
    return joined(
        f"n = {counts['n']} words of {shown(result.settings['text'])}",
        f"d = {result.widths[0]} and {result.widths[1]}",
        f"fits on {counts['fitted']}, scored on {counts['held_out']} of other texts",
        ", ".join(filter(None, left_out)) and "left out: " + ", ".join(filter(None, left_out)),
    )


@plot.register
def _(result: Alignment, path: str | Path) -> None:
    """The paper's panels: a column a group, a row a space, matched pairs framed."""
    spaces = list(dict.fromkeys(s for group in result.groups.values() for s in group.spaces()))
    wide, high = len(result.groups), len(spaces)
    with drawn(path, PANEL * wide + 0.6, 2.2 * high + 0.5) as figure:
        panels = figure.subplots(high, wide, squeeze=False)
        for row, space in enumerate(spaces):
            for column, (name, group) in enumerate(result.groups.items()):
                found = group.spaces().get(space)
                if found is None:
                    panels[row, column].set_axis_off()
                    continue
                bar = _panel(figure, panels[row, column], found, f"{name}, {space} space")
                bar.set_label("mean |correlation|, less row and column means", fontsize=6)
        _sides(figure, "layer", result.provenance)


@plot.register
def _(result: StateAlignment, path: str | Path) -> None:
    """A panel a measure, matched states framed; less than 0 is shaded as 0."""
    n = len(result.measures)
    with drawn(path, (PANEL + 0.5) * n + 0.4, 3.2) as figure:
        panels = figure.subplots(1, n, squeeze=False)[0]
        for axes, (name, found) in zip(panels, result.measures.items(), strict=True):
            _panel(figure, axes, found, NAMES[name], (0.0, 1.0))
        _sides(figure, "state", result.provenance)


def _sides(figure: "Figure", what: str, provenance: dict[str, Any]) -> None:
    a, b = (clipped(model_name(provenance[side]), NAME) for side in ("a", "b"))
    figure.supylabel(f"{what} of {a}", fontsize=9)
    figure.supxlabel(f"{what} of {b}", fontsize=9)


def _panel(
    figure: "Figure",
    axes: "Axes",
    found: LayerMatch,
    title: str,
    ends: tuple[float, float] | None = None,
) -> "Colorbar":
    """Scores shaded between the ends, matched pairs framed; its bar.

    Without ends: less the means of their row and column, which every match shares.
    """
    from matplotlib.patches import Rectangle

    score = found.score if ends else centred(found.score)
    shade = [[float("nan") if x is None else x for x in row] for row in score]
    low, high = ends or (None, None)
    image = axes.imshow(
        shade, cmap=MAP, aspect="equal", interpolation="nearest", vmin=low, vmax=high
    )
    axes.set_facecolor("#d9d9d9")  # shows where there is no score
    for i, j in found.pairs:
        for colour, width in (("black", 2.4), ("white", 1.2)):  # seen on dark and on light shades
            frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=colour)
            frame.set(linewidth=width, clip_on=False, zorder=3)
            axes.add_patch(frame)
    chance = f", p = {p_value(found.p)}" if found.p is not None else ""
    axes.set_title(f"{title}{one_of_many(found)}\ndiagonal: {diagonal(found)}{chance}", fontsize=8)
    whole_numbers(axes.xaxis, axes.yaxis)
    bar = figure.colorbar(image, ax=axes, shrink=0.75)
    bar.ax.tick_params(labelsize=7)
    return bar
