"""What all figures share: style, colours, and a file that appears whole or not at all."""

import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache import require_file, write_atomically
from ..errors import EmbspaceError
from ..weights.json_files import path_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
MAP = "viridis"  # even to the eye, in the same order for the colour-blind and in grey
PANEL = 2.5  # inches of one of several panels side by side
SIGNED = "RdBu_r"  # for numbers on both sides of 0, which is white
# Okabe and Ito's colours, told apart by the colour-blind, and the dashes and marks that go with
# them, so that lines differ in grey too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "embspace",  # the same figure gives the same bytes
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name with dollars in it is a name
}
UNDATED = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def require_plot(path: str | Path) -> Path:
    """The path of a figure that can be drawn; to be called before long work.

    Raises EmbspaceError for another kind of file than png, svg or pdf, for a folder that is not
    there, and without matplotlib.
    """
    path = path_of(str(path))
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise EmbspaceError(f"{path} cannot be a figure: end its name in .png, .svg or .pdf.")
    require_file(path)
    _matplotlib()
    return path


def _matplotlib() -> Any:
    """The library, whatever MPLBACKEND says: a notebook's is unknown to other environments.

    We draw on a Figure of our own, without pyplot, so no window system is ever asked for.
    """
    asked = os.environ.get("MPLBACKEND")
    if asked is not None and "matplotlib" not in sys.modules:
        os.environ["MPLBACKEND"] = "agg"
    try:
        import matplotlib
    except ImportError as error:
        raise EmbspaceError(
            "figures need matplotlib: install it with  pip install 'embspace[plot]'."
        ) from error
    finally:
        if asked is not None:
            os.environ["MPLBACKEND"] = asked
    return matplotlib


def _style(matplotlib: Any) -> dict[str, Any]:
    """Matplotlib's own defaults under our style: a user's matplotlibrc changes no figure."""
    kept = ("backend", "backend_fallback", "interactive")  # the user's windows stay as they are
    return {k: v for k, v in matplotlib.rcParamsDefault.items() if k not in kept} | STYLE


@contextmanager
def drawn(path: str | Path, width: float, height: float) -> Iterator["Figure"]:
    """An empty figure (inches) in our style; it is written to `path` when its block ends."""
    path = require_plot(path)
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style(matplotlib)):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        write_atomically(path, _bytes(figure, path.suffix.lower().removeprefix(".")))


def look(n: int) -> dict[str, Any]:
    """Colour, dashes and marks of the nth curve of a panel."""
    n %= len(COLOURS)
    return {"color": COLOURS[n], "linestyle": DASHES[n], "marker": MARKS[n], "markersize": 3}


def curve(
    axes: "Axes",
    n: int,
    name: str,
    x: Sequence[float],
    means: Iterable[float],
    intervals: Iterable[tuple[float | None, float | None] | None],
) -> None:
    """The nth curve of a panel, with its 95 % intervals as a band; a gap where there is none."""
    nan = float("nan")
    ends = [(nan, nan) if each is None or None in each else each for each in intervals]
    axes.plot(x, list(means), label=name, **look(n))
    low, high = [low for low, _ in ends], [high for _, high in ends]
    axes.fill_between(x, low, high, color=look(n)["color"], alpha=0.2, linewidth=0)  # type: ignore[arg-type]


def panels_by_layer(
    path: str | Path, panels: Mapping[str, Sequence[Any]], fields: Sequence[str], label: str
) -> None:
    """Estimates by layer, a panel a name: the `fields` of each row are its curves."""
    with drawn(path, PANEL * len(panels), 2.4) as figure:
        every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (title, rows) in zip(every, panels.items(), strict=True):
            for n, field in enumerate(fields):
                found = [getattr(row, field) for row in rows]
                intervals = [(each.low, each.high) for each in found]
                curve(axes, n, field, [r.layer for r in rows], [e.mean for e in found], intervals)
            axes.set_title(title)
            axes.set_xlabel("layer")
            whole_numbers(axes.xaxis)
        every[0].set_ylabel(label)
        legend(every[0])


def legend(axes: "Axes", size: int = 8) -> None:
    """The names of a panel's curves, without a frame."""
    axes.legend(frameon=False, fontsize=size)


def whole_numbers(*axes: Any) -> None:
    """Ticks at whole numbers only; of `panel.xaxis`, `panel.yaxis`."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True))


def _bytes(figure: "Figure", kind: str) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=160, metadata=UNDATED[kind])
    return out.getvalue()
