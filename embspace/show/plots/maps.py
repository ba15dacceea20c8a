"""Scores of maps as figures: r² of all pairs (the paper's two panels), and the curves by layer."""

from pathlib import Path
from typing import TYPE_CHECKING

from ...maps.score import Scores
from .figures import COLOURS, DASHES, MAP, MARKS, drawn, ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = (
    ("precision@1", "Precision@1"),
    ("precision@10", "Precision@10"),
    ("surprisal", "Surprisal (nats)"),
    ("kl", "KL (nats)"),
)


def plot_scores(result: Scores, path: str | Path) -> None:
    """Write r² panels and curves with intervals; raises EmbspaceError for a bad name of a file."""
    several = len({pair.split("-")[1] for pair in next(iter(result.r2.values()))}) > 1
    rows = int(several) + bool(result.layers)
    with drawn(path, 10.0, 2.9 * max(rows, 1)) as figure:
        parts = figure.subfigures(max(rows, 1), 1, squeeze=False)[:, 0]
        if several:
            _heat(parts[0], result)
        if result.layers:
            _curves(parts[-1], result)


def _heat(figure: "Figure", result: Scores) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots(1, len(result.r2), squeeze=False)[0]
    n = max(int(pair.split("-")[1]) for pair in next(iter(result.r2.values())))
    for panel, (kind, found) in zip(axes, result.r2.items(), strict=True):
        shade = [[float("nan")] * (n + 1) for _ in range(n)]
        for pair, value in found.items():
            a, b = map(int, pair.split("-"))
            shade[a][b] = float("nan") if value is None else max(0.0, value)
        image = panel.imshow(shade, cmap=MAP, vmin=0, vmax=1, interpolation="nearest")
        panel.set_title(f"{kind}: r² (below 0 as 0)")
        panel.set_xlabel("to state l'")
        panel.set_ylabel("from state l")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=panel, shrink=0.8)


def _curves(figure: "Figure", result: Scores) -> None:
    axes = figure.subplots(1, len(CURVES), squeeze=False)[0]
    for panel, (measure, name) in zip(axes, CURVES, strict=True):
        for n, kind in enumerate(result.layers):
            _curve(panel, result, kind, measure, n)
        panel.set_xlabel("state l")
        panel.set_ylabel(name)
    axes[0].legend(frameon=False, fontsize=8)


def _curve(axes: "Axes", result: Scores, kind: str, measure: str, n: int) -> None:
    scores = result.layers[kind]
    layers = [score.layer for score in scores]
    low, high = ends(score.intervals[measure] for score in scores)
    style = {"color": COLOURS[n], "linestyle": DASHES[n], "marker": MARKS[n], "markersize": 3}
    axes.plot(layers, [score.means[measure] for score in scores], label=kind, **style)
    axes.fill_between(layers, low, high, color=COLOURS[n], alpha=0.2, linewidth=0)
