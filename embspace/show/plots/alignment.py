"""An alignment as the paper's panels: a column a parameter group, a row a space. [DAR] §5.1.

Of states: a panel a measure.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...between.alignment import Alignment
from ...between.matching import LayerMatch
from ...between.state_alignment import StateAlignment
from ..sheets.alignment import centred, diagonal, p_value
from ..sheets.state_alignment import NAMES
from ..view import clipped, model_name
from .figures import MAP, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
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
                bar = _panel(figure, panels[row, column], found, f"{name}, {space} space")
                bar.set_label("mean |correlation|, less row and column means", fontsize=6)
        _sides(figure, "layer", result.provenance)


def plot_state_alignment(result: StateAlignment, path: str | Path) -> None:
    """Write how alike states are, matched ones framed; less than 0 is shaded as 0.

    Raises EmbspaceError.
    """
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
    from matplotlib.ticker import MaxNLocator

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
    axes.set_title(f"{title}\ndiagonal: {diagonal(found)}{chance}", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    bar = figure.colorbar(image, ax=axes, shrink=0.75)
    bar.ax.tick_params(labelsize=7)
    return bar
