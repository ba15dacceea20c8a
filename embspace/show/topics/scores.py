"""How held-out scores look: maps and the identity side by side, layer by layer, with intervals.

Of maps on one text, on another text, and of single sub-modules.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...intervals import FEWEST, Interval
from ...maps.score import KS, LayerScore, Scores
from ...maps.transfer import MEASURES, Transfer
from ...shorten.submodules import SubmoduleScores, parts_of
from ..figures import MAP, curve, drawn, legend, whole_numbers
from ..report import HeatMap, Report, Table, number, of_model, plot, report, text
from ..wording import clipped, shown, taken_line
from .maps import r2_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "precision@1": "P@1",
    "precision@5": "P@5",
    "precision@10": "P@10",
    "surprisal": "surprisal",
    "kl": "KL",
}
DROPS = {"precision@5": 2, "kl": 3, "precision@10": 5}
MEASURED = (
    "P@k: the map's first token is among the model's own k first. Surprisal: −log p_model of it, "
    "nats. KL(model ‖ map), nats. "
)
MEANING = (
    f"{MEASURED}±: half a 95 % interval over texts, left out where fewer than {FEWEST} texts tell "
    "none. Both ends, and what has no room here, are in --csv and --json."
)
BARE = f"{MEASURED}95 % intervals over texts are in --csv and --json."
PARTS = {
    "attn": "attention",
    "ff": "feed-forward",
    "attn_norm": "norm 1",
    "ff_norm": "norm 2",
    "norms": "both norms",
}
AXES = {  # of a figure
    "precision@1": "Precision@1",
    "precision@10": "Precision@10",
    "surprisal": "Surprisal (nats)",
    "kl": "KL (nats)",
}
NAME = 24  # cells of a text's name in a figure


@report.register
def _(result: Scores) -> Report:
    settings = result.settings
    about = (
        f"text {shown(settings.get('text'))}",
        f"maps of {settings.get('rows_fitted')} rows",
        taken_line(settings),
    )
    title = f"{settings.get('rows')} held-out positions"
    tables = [_by_layer(result) if result.layers else _by_pair(result)]
    notes = (MEANING,) if result.layers else ()
    return of_model(result, title, about, tables, notes, maps=_heat_maps(result))


def _by_layer(result: Scores) -> Table:
    """A row is the place of a layer among those scored."""
    first, *others = kinds = list(result.layers)
    last = max(int(pair.split("-")[1]) for pair in result.r2[first])

    def r2(kind: str, n: int) -> float | None:
        return result.r2[kind].get(f"{result.layers[kind][n].layer}-{last}")

    columns = [number("layer", lambda n: result.layers[first][n].layer)]
    columns.append(number(f"r² {first}", lambda n: r2(first, n), "value", 4, digits=3))
    columns += [number(k, lambda n, k=k: r2(k, n), "faint", 4, digits=3) for k in others]
    for measure, name in NAMES.items():
        for kind in kinds:
            header, tone = (f"{name} {kind}", "value") if kind == first else (kind, "faint")
            scores, drop = result.layers[kind], DROPS.get(measure, 0)
            columns += [
                number(header, lambda n, s=scores, m=measure: s[n].means[m], tone, drop, digits=3),
                number(
                    "±",
                    lambda n, s=scores, m=measure: _half(s[n].intervals[m]),
                    "faint",
                    1,
                    digits=2,
                ),
            ]
    return Table.of(range(len(result.layers[first])), columns)


def _half(interval: Interval) -> float | None:
    return interval and (interval[1] - interval[0]) / 2


def _by_pair(result: Scores) -> Table:
    columns = [text("layers", lambda pair: pair.replace("-", " → "), "key")]
    for kind, found in result.r2.items():
        columns.append(number(f"{kind} r²", lambda pair, found=found: found.get(pair)))
    return Table.of(next(iter(result.r2.values())), columns)


def _pairs(found: Mapping[str, float | None]) -> dict[tuple[int, int], float | None]:
    """r² by the numbers of both layers, of `"3-12"`."""
    return {(int(a), int(b)): r2 for pair, r2 in found.items() for a, b in [pair.split("-")]}


def _heat_maps(result: Scores) -> tuple[tuple[HeatMap, ...], ...]:
    """r² of every pair, where more than those to the last state were scored."""
    every = {kind: _pairs(found) for kind, found in result.r2.items()}
    targets = {b for _, b in next(iter(every.values()))}
    if len(targets) < 2:
        return ()
    floors = {k: any((r2 or 0) < 0 for r2 in found.values()) for k, found in every.items()}
    titles = {kind: f"r² of {kind}{' (below 0 as 0)' * floor}" for kind, floor in floors.items()}
    return (tuple(r2_map(titles[kind], found, max(targets)) for kind, found in every.items()),)


@report.register
def _(result: Transfer) -> Report:
    special = {"id": "(identity)", None: "change"}
    columns = (
        text("scored on", lambda row: shown(row[0]), "key"),
        text("fitted on", lambda row: special.get(row[1]) or shown(row[1])),
        *(number(NAMES[m], lambda row, m=m: _moved(result, row, m), digits=3) for m in MEASURES),
    )
    one, other = result.texts
    rows = [(on, by) for on, away in ((one, other), (other, one)) for by in (on, away, "id", None)]
    about = (
        f"mean over layers, {result.settings.get('rows_fitted')} lines fitted of each text",
        "change: fitted elsewhere minus fitted here",
    )
    table = Table.of(rows, columns, breaks=[len(rows) // 2])
    return of_model(result, "maps of one text on another", about, [table], (BARE,))


def _moved(result: Transfer, row: tuple[str, str | None], measure: str) -> float:
    """The mean on a text of maps fitted by another; None: how far away differs from here."""
    on, by = row
    return result.change[on][measure] if by is None else result.mean(by, on, measure)


@report.register
def _(result: SubmoduleScores) -> Report:
    about = (
        f"text {shown(result.settings.get('text'))}",
        f"{result.settings.get('rows')} held-out positions",
        f"maps of {result.settings.get('rows_fitted')} rows",
    )
    tables = [_part(part_title(name), name, each, result) for name, each in result.parts.items()]
    tables.append(_part("all of it, as one map from state l", "", result.blocks, result))
    return of_model(result, "linear from block l on", about, tables, (BARE,))


def part_title(name: str) -> str:
    """`attn,norms` in words."""
    return " + ".join(PARTS[part] for part in name.split(","))


def _part(title: str, name: str, scores: Sequence[LayerScore], result: SubmoduleScores) -> Table:
    """Scores by the first linear block; name: the sub-modules, empty for whole blocks."""
    parts = [part for part in parts_of(name) if part in result.r2] if name else []
    columns = [number("from l", lambda one: one.layer)]
    for part in parts:
        head = "r² in l" if len(parts) == 1 else f"r² {PARTS[part]}"
        found = result.r2[part]
        columns.append(number(head, lambda one, r=found: r.get(one.layer), "faint", 2, digits=3))
    for measure in (f"precision@{KS[0]}", f"precision@{KS[-1]}", "surprisal", "kl"):
        columns.append(number(NAMES[measure], lambda one, m=measure: one.means.get(m), digits=3))
    return Table.of(scores, columns, title)


@plot.register
def _(result: Scores, path: str | Path) -> None:
    """r² of all pairs (the paper's two panels), and the curves by layer with intervals."""
    several = len({b for _, b in _pairs(next(iter(result.r2.values())))}) > 1
    rows = max(int(several) + bool(result.layers), 1)
    with drawn(path, 10.0, 2.9 * rows) as figure:
        parts = figure.subfigures(rows, 1, squeeze=False)[:, 0]
        if several:
            _r2_panels(parts[0], result)
        if result.layers:
            panels = parts[-1].subplots(1, len(AXES), squeeze=False)[0]
            for axes, measure in zip(panels, AXES, strict=True):
                _curves(axes, result.layers, measure, "state l")
            legend(panels[0])


def _r2_panels(figure: "Figure", result: Scores) -> None:
    panels = figure.subplots(1, len(result.r2), squeeze=False)[0]
    for axes, (kind, found) in zip(panels, result.r2.items(), strict=True):
        pairs = _pairs(found)
        heat = r2_map(f"{kind}: r² (below 0 as 0)", pairs, max(b for _, b in pairs))
        shade = [[float("nan") if x is None else x for x in row] for row in heat.values]
        image = axes.imshow(shade, cmap=MAP, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(heat.title)
        axes.set_xlabel("to state l'")
        axes.set_ylabel("from state l")
        whole_numbers(axes.xaxis, axes.yaxis)
        figure.colorbar(image, ax=axes, shrink=0.8)


@plot.register
def _(result: SubmoduleScores, path: str | Path) -> None:
    """Precision by the first block from which a part is linear."""
    every = {part_title(name): each for name, each in result.parts.items()}
    every |= {"one map": result.blocks}
    with drawn(path, 7.0, 2.9) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, measure in zip(panels, ("precision@1", "precision@10"), strict=True):
            _curves(axes, every, measure, "linear from block l on")
            axes.set_ylim(-0.02, 1.02)
        legend(panels[-1])


@plot.register
def _(result: Transfer, path: str | Path) -> None:
    """Precision@1 by layer on each text, by what was fitted on."""
    with drawn(path, 7.0, 2.9) as figure:
        panels = figure.subplots(1, len(result.texts), sharey=True)
        for axes, on in zip(panels, result.texts, strict=True):
            other = next(text for text in result.texts if text != on)
            every = {
                "fitted here": result.scores[on, on],
                "fitted on the other": result.scores[other, on],
                "id": result.identity[on],
            }
            _curves(axes, every, "precision@1", "state l")
            axes.set_ylim(-0.02, 1.02)
            axes.set_title(f"scored on {clipped(shown(on), NAME)}", fontsize=9)
        legend(panels[0])


def _curves(axes: "Axes", every: Mapping[str, Sequence[LayerScore]], measure: str, x: str) -> None:
    """Means by layer, a curve a name."""
    for n, (name, scores) in enumerate(every.items()):
        layers, means = [s.layer for s in scores], [s.means[measure] for s in scores]
        curve(axes, n, name, layers, means, (s.intervals[measure] for s in scores))
    axes.set_xlabel(x)
    axes.set_ylabel(AXES[measure])
    whole_numbers(axes.xaxis)
