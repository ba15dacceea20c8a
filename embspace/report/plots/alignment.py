"""An alignment as the paper's panels: a column a parameter group, a row a space. [DAR] §5.1."""

from pathlib import Path
from typing import TYPE_CHECKING

from ...compare.alignment import Alignment
from ...compare.matching import LayerMatch
from ..sheets.alignment import diagonal, p_value
from ..view import clipped, model_name
from .figures import MAP, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 2.6  # inches
NAME = 28  # cells of a model's name beside an axis


def plot_alignment(result: Alignment, path: str | Path) -> None:
    """Write the layers' scores as panels, matched pairs framed; raises EmbspaceError."""
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
                _panel(figure, panels[row, column], found, f"{name}, {space} space")
        names = [clipped(model_name(result.provenance[side]), NAME) for side in ("a", "b")]
        figure.supylabel(f"layer of {names[0]}", fontsize=9)
        figure.supxlabel(f"layer of {names[1]}", fontsize=9)


def _panel(figure: "Figure", axes: "Axes", found: LayerMatch, title: str) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    shade = [[float("nan") if x is None else x for x in row] for row in found.score]
    image = axes.imshow(shade, cmap=MAP, aspect="equal", interpolation="nearest")
    axes.set_facecolor("#d9d9d9")  # shows where there is no score
    for i, j in found.pairs:
        for colour, width in (("black", 2.4), ("white", 1.2)):  # seen on dark and on light shades
            frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=colour)
            frame.set(linewidth=width, clip_on=False, zorder=3)
            axes.add_patch(frame)
    chance = f", p = {p_value(found.p)}" if found.p is not None else ""
    axes.set_title(f"{title}\ndiagonal: {diagonal(found)}{chance}", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    bar = figure.colorbar(image, ax=axes, shrink=0.75)
    bar.set_label("mean |correlation|", fontsize=7)
    bar.ax.tick_params(labelsize=7)
