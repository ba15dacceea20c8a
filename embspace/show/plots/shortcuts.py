"""Linear sub-modules and maps of other texts as figures: curves by layer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...maps.score import LayerScore
from ...maps.transfer import Transfer
from ...shorten.submodules import SubmoduleScores
from ..sheets.scores import part_title
from ..view import clipped, shown
from .figures import COLOURS, DASHES, MARKS, drawn, ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = 24
PRECISION = (("precision@1", "Precision@1"), ("precision@10", "Precision@10"))


def plot_submodules(result: SubmoduleScores, path: str | Path) -> None:
    """Write Precision by the first block from which a part is linear; raises EmbspaceError."""
    every = {part_title(name): each for name, each in result.parts.items()}
    every |= {"one map": result.blocks}
    with drawn(path, 7.0, 2.9) as figure:
        panels = figure.subplots(1, len(PRECISION), sharey=True)
        for axes, (measure, label) in zip(panels, PRECISION, strict=True):
            for n, (name, scores) in enumerate(every.items()):
                _curve(axes, scores, measure, name, n)
            _framed(axes, "linear from block l on", label)
        panels[-1].legend(frameon=False, fontsize=8)


def plot_transfer(result: Transfer, path: str | Path) -> None:
    """Write Precision@1 by layer on each text, by what was fitted on; raises EmbspaceError."""
    with drawn(path, 7.0, 2.9) as figure:
        panels = figure.subplots(1, len(result.texts), sharey=True)
        for axes, on in zip(panels, result.texts, strict=True):
            other = next(text for text in result.texts if text != on)
            curves = {
                "fitted here": result.scores[on, on],
                "fitted on the other": result.scores[other, on],
                "id": result.identity[on],
            }
            for n, (name, scores) in enumerate(curves.items()):
                _curve(axes, scores, "precision@1", name, n)
            _framed(axes, "state l", "Precision@1")
            axes.set_title(f"scored on {clipped(shown(on), NAME)}", fontsize=9)
        panels[0].legend(frameon=False, fontsize=8)


def _curve(axes: "Axes", scores: Sequence[LayerScore], measure: str, name: str, n: int) -> None:
    """Means by layer, their 95 % intervals as a band."""
    layers = [score.layer for score in scores]
    low, high = ends(score.intervals[measure] for score in scores)
    n %= len(COLOURS)
    look = {"color": COLOURS[n], "linestyle": DASHES[n], "marker": MARKS[n], "markersize": 3}
    axes.plot(layers, [score.means[measure] for score in scores], label=name, **look)  # type: ignore[arg-type]
    axes.fill_between(layers, low, high, color=COLOURS[n], alpha=0.15, linewidth=0)


def _framed(axes: "Axes", x: str, y: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
