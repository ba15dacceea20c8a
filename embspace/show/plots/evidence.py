"""The papers' experiments as figures: measured curves beside their baselines."""

from collections.abc import Sequence
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...estimate import Estimate
from ...evidence.concepts import Concept
from ...evidence.inverse import InverseCheck
from ...evidence.matching_pairs import PairSimilarity
from ...evidence.state_overlap import StateOverlap
from ...evidence.trust import HeadTrust, Trust
from ...notation import INVERSES
from ..sheets.evidence import INVERSE_NAMES, VECTOR_NAMES
from ..view import clipped
from .figures import COLOURS, DASHES, MARKS, SIGNED, drawn, require_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL, HEIGHT = 2.5, 2.4  # inches


@singledispatch
def plot_evidence(result: Any, path: str | Path) -> None:
    """Write an experiment's result as a figure; raises EmbspaceError for a bad name of a file."""
    raise TypeError(f"{type(result).__name__} is no result of an experiment.")


@plot_evidence.register
def _(result: PairSimilarity, path: str | Path) -> None:
    kinds = result.kinds()
    with drawn(path, PANEL * len(kinds), HEIGHT) as figure:
        panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
        for axes, (kind, rows) in zip(panels, kinds.items(), strict=True):
            layers = [row.layer for row in rows]
            _curve(axes, 0, "matching", layers, [row.matching for row in rows])
            _curve(axes, 1, "shuffled", layers, [row.shuffled for row in rows])
            _by_layer(axes, kind)
        panels[0].set_ylabel(f"mean Sim_{result.settings.get('k')} (Jaccard index)")
        panels[0].legend(frameon=False, fontsize=8)


@plot_evidence.register
def _(result: StateOverlap, path: str | Path) -> None:
    parts = result.parts()
    with drawn(path, PANEL * len(parts), HEIGHT) as figure:
        panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
        for axes, (part, rows) in zip(panels, parts.items(), strict=True):
            layers = [row.layer for row in rows]
            _curve(axes, 0, "aligned", layers, [row.aligned for row in rows])
            _curve(axes, 1, "permuted", layers, [row.permuted for row in rows])
            _by_layer(axes, part)
        state = "layer's state" if result.against == "state" else "final state"
        panels[0].set_ylabel(f"R_{result.settings.get('k')} with the {state}")
        panels[0].legend(frameon=False, fontsize=8)


@plot_evidence.register
def _(result: InverseCheck, path: str | Path) -> None:
    require_plot(path)
    from matplotlib.ticker import NullFormatter

    names = list(dict.fromkeys(point.vectors for point in result.points))
    with drawn(path, PANEL * len(names), HEIGHT) as figure:
        panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
        for axes, name in zip(panels, names, strict=True):
            for n, inverse in enumerate(INVERSES):
                points = [p for p in result.points if (p.vectors, p.inverse) == (name, inverse)]
                x, y = [p.k for p in points], [p.cosine for p in points]
                axes.plot(x, y, label=INVERSE_NAMES[inverse], **_look(n))
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:.0f}")  # powers are maths, which we do not parse
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_title(VECTOR_NAMES[name])
            axes.set_xlabel("entries kept (k)")
        panels[0].set_ylabel("cosine with X X^T")
        panels[0].legend(frameon=False, fontsize=8)


@plot_evidence.register
def _(result: Concept, path: str | Path) -> None:
    parts = list(result.n_vectors)
    with drawn(path, PANEL * len(parts), HEIGHT) as figure:
        panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
        for axes, part in zip(panels, parts, strict=True):
            cosines = [vector.cosine for vector in result.of_part(part)]
            axes.plot(range(1, len(cosines) + 1), cosines, label="this topic", **_look(0))
            mean, high = result.best_random[part]
            for n, (name, level) in enumerate((("random: mean", mean), ("random: 95 %", high))):
                colour, dash = COLOURS[n + 1], DASHES[n + 1]
                axes.axhline(level, color=colour, linestyle=dash, label=f"nearest to {name}")
            axes.set_title(part)
            axes.set_xlabel("rank of the vector")
        panels[0].set_ylabel("cosine with the topic")
        panels[0].legend(frameon=False, fontsize=7)
        figure.suptitle(clipped(" ".join(result.words), 60), fontsize=9)


@plot_evidence.register
def _(result: Trust, path: str | Path) -> None:
    circuits = list(dict.fromkeys(head.circuit for head in result.heads))
    with drawn(path, 3.4 * len(circuits), 3.0) as figure:
        panels = figure.subplots(1, len(circuits), squeeze=False)[0]
        image = None
        for axes, circuit in zip(panels, circuits, strict=True):
            image = _heads(axes, [head for head in result.heads if head.circuit == circuit])
            axes.set_title(f"W_{circuit.upper()} (dot: strong, ring: some)", fontsize=8)
            axes.set_xlabel("head")
        panels[0].set_ylabel("layer")
        if image is not None:
            figure.colorbar(image, ax=panels.tolist(), label="agreement (correlation)")


def _curve(
    axes: "Axes", n: int, name: str, x: Sequence[int], estimates: Sequence[Estimate]
) -> None:
    """Means by layer, their 95 % intervals as a band."""
    axes.plot(x, [e.mean for e in estimates], label=name, **_look(n))
    low = [e.mean if e.low is None else e.low for e in estimates]
    high = [e.mean if e.high is None else e.high for e in estimates]
    axes.fill_between(x, low, high, color=COLOURS[n], alpha=0.2, linewidth=0)


def _look(n: int) -> dict[str, Any]:
    return {"color": COLOURS[n], "linestyle": DASHES[n], "marker": MARKS[n], "markersize": 3}


def _heads(axes: "Axes", heads: Sequence[HeadTrust]) -> Any:
    """Own agreement, a head a column; those with a grade are marked."""
    from matplotlib.ticker import MaxNLocator

    high, wide = (1 + max(getattr(h, name) for h in heads) for name in ("layer", "head"))
    shade = [[float("nan")] * wide for _ in range(high)]
    for h in heads:
        shade[h.layer][h.head] = h.own.mean
        if h.grade != "none":
            face = "black" if h.grade == "strong" else "none"
            axes.plot([h.head], [h.layer], "o", color="black", markerfacecolor=face, markersize=4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return axes.imshow(shade, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")  # 0 in the middle


def _by_layer(axes: "Axes", title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title)
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
