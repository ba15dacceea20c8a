"""How lenses compare on the same held-out positions: means over layers, and layer by layer."""

from pathlib import Path
from typing import Any

from ...maps.lens_comparison import METRICS, LensComparison
from ..figures import curve, drawn, legend
from ..report import Report, Table, number, of_model, plot, report, text
from ..wording import hashed_text, span, written

DROPS = {"precision@5": 2, "precision@10": 3}
BY_LAYER = ("kl", "precision@1")


@report.register
def _(result: LensComparison) -> Report:
    about = (
        f"{result.settings.get('rows')} positions of {hashed_text(result.settings)}",
        "means over layers, 95 % intervals over texts",
        "KL, cross-entropy and Surprisal in nats",
    )
    tables = (_means(result), *(_by_layer(result, metric) for metric in BY_LAYER))
    return of_model(result, "lenses on the same held-out positions", about, tables)


def _means(result: LensComparison) -> Table:
    def mean(name: str, metric: str) -> str:
        return written(result.overall[name].means.get(metric), ".3f")

    def interval(name: str, metric: str) -> str:
        return span(result.overall[name].intervals.get(metric))

    def cost(name: str) -> Any:
        return result.costs[name]

    columns = [text("lens", lambda name: name, "value")]
    for metric, title in METRICS.items():
        drop = DROPS.get(metric, 0)
        columns.append(text(title, lambda name, m=metric: mean(name, m), drop=drop))
        columns.append(text("", lambda name, m=metric: interval(name, m), "faint", drop=1))
    columns += [
        text("fit rows", lambda name: written(cost(name).rows, ""), "faint", drop=4),
        text("fit s", lambda name: written(cost(name).seconds, ".0f"), "faint", drop=4),
        text("MB", lambda name: f"{cost(name).n_bytes / 1e6:.1f}", "faint", drop=4),
    ]
    return Table.of(result.costs, columns, "mean over layers")


def _by_layer(result: LensComparison, metric: str) -> Table:
    columns = [number("layer", lambda row: row[1])]
    for name, scores in result.layers.items():
        columns.append(text(name, lambda row, s=scores: f"{s[row[0]].means[metric]:.3f}", "value"))
    layers = enumerate(result.settings["layers"])
    return Table.of(layers, columns, f"{METRICS[metric]} by layer")


@plot.register
def _(result: LensComparison, path: str | Path) -> None:
    """KL and Precision@1 of every lens by layer, with their intervals as bands."""
    with drawn(path, 7.0, 2.8) as figure:
        panels = figure.subplots(1, 2)
        for axes, metric in zip(panels, BY_LAYER, strict=True):
            for n, (name, scores) in enumerate(result.layers.items()):
                means = [score.means[metric] for score in scores]
                intervals = [score.intervals[metric] for score in scores]
                curve(axes, n, name, [score.layer for score in scores], means, intervals)
            axes.set_xlabel("layer")
            axes.set_ylabel(METRICS[metric] + (" (nats)" if metric == "kl" else ""))
        legend(panels[0])
