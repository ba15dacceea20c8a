"""A prompt through the lens as a figure: layers down, positions across, shaded by probability."""

from pathlib import Path
from typing import TYPE_CHECKING

from ...maps.lens_comparison import METRICS, LensComparison
from ...maps.lens_grid import Lens
from ..sheets.lens import token_grids
from ..view import TokenGrid, clipped, joined, model_name, shown
from .figures import COLOURS, DASHES, MAP, MARKS, drawn, ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL, ROW = 0.75, 0.22  # inches
LONGEST = 10  # characters of a token in a cell


def plot_lens(result: Lens, path: str | Path) -> None:
    """Write the grids below each other, each cell with its token; raises EmbspaceError."""
    grids = token_grids(result)
    wide, high = len(result.places), len(grids[0].rows)
    with drawn(path, max(4.0, CELL * wide + 1.2), len(grids) * (ROW * high + 0.9) + 0.3) as figure:
        panels = figure.subplots(len(grids), 1, squeeze=False)[:, 0]
        images = [_grid(axes, grid) for axes, grid in zip(panels, grids, strict=True)]
        figure.colorbar(images[-1], ax=panels.tolist(), label="probability", fraction=0.03)
        named = joined(model_name(result.provenance), shown(str(result.settings.get("prompt", ""))))
        figure.suptitle(clipped(named, max(40, 12 * wide)), fontsize=9)


def _grid(axes: "Axes", grid: TokenGrid):
    p = [[cell[1] for cell in row] for row in grid.cells]
    image = axes.imshow(p, cmap=MAP, vmin=0, vmax=1, aspect="auto")
    for r, row in enumerate(grid.cells):
        for at, (token, share, settled) in enumerate(row):
            ink = "black" if share > 0.6 else "white"
            weight = "bold" if settled else "normal"
            text = clipped(token, LONGEST)
            axes.text(at, r, text, color=ink, ha="center", va="center", fontsize=6, weight=weight)
    axes.set_xticks(range(len(grid.heads)), [clipped(h, LONGEST) for h in grid.heads], fontsize=6)
    axes.set_yticks(range(len(grid.rows)), grid.rows, fontsize=6)
    axes.xaxis.tick_top()
    axes.set_ylabel("layer")
    axes.set_title(grid.title, fontsize=8)
    return image


def plot_lenses(result: LensComparison, path: str | Path) -> None:
    """Write KL and Precision@1 of every lens by layer, with their intervals as bands."""
    with drawn(path, 7.0, 2.8) as figure:
        panels = figure.subplots(1, 2)
        for axes, metric in zip(panels, ("kl", "precision@1"), strict=True):
            for n, (name, scores) in enumerate(result.layers.items()):
                layers = [s.layer for s in scores]
                look = {"color": COLOURS[n % 7], "linestyle": DASHES[n % 7]}
                means = [s.means[metric] for s in scores]
                axes.plot(layers, means, label=name, marker=MARKS[n % 7], markersize=3, **look)
                low, high = ends(s.intervals[metric] for s in scores)
                axes.fill_between(layers, low, high, color=look["color"], alpha=0.2, linewidth=0)
            axes.set_xlabel("layer")
            axes.set_ylabel(METRICS[metric] + (" (nats)" if metric == "kl" else ""))
        panels[0].legend(frameon=False, fontsize=8)
