"""Early exit and alternation as figures: Precision@1 against blocks run. [DIN] §6"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...shorten.alternation import Alternation
from ...shorten.early_exit import Exits
from .figures import COLOURS, DASHES, MARKS, drawn, ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_exits(result: Exits, path: str | Path) -> None:
    """Curves of every lens and rule, chosen ones ringed; where rows leave. Raises EmbspaceError."""
    with drawn(path, 9.0, 3.4) as figure:
        curve, left = figure.subplots(1, 2, width_ratios=(3, 2))
        kinds = list(dict.fromkeys((p.map, p.rule) for p in result.points))
        for n, (name, rule) in enumerate(kinds):
            points = [p for p in result.points if (p.map, p.rule) == (name, rule)]
            points.sort(key=lambda p: p.blocks)
            low, high = ends(p.precision_interval for p in points)
            x = [p.blocks for p in points]
            curve.plot(x, [p.precision[1] for p in points], label=f"{name} {rule}", **_look(n))
            curve.fill_between(x, low, high, color=COLOURS[n], alpha=0.15, linewidth=0)
            chosen = result.choice(name, rule).point
            curve.plot([chosen.blocks], [chosen.precision[1]], "o", markersize=9,
                       color=COLOURS[n], markerfacecolor="none")  # fmt: skip
        curve.axhline(result.settings["target"], color="#888888", linestyle=":", linewidth=1)
        curve.set_xlabel(f"mean blocks run (of {result.n_layers})")
        curve.set_ylabel("Precision@1")
        curve.legend(frameon=False, fontsize=8)
        _histogram(left, result)


def _histogram(axes: "Axes", result: Exits) -> None:
    from matplotlib.ticker import MaxNLocator

    mine = [c.point for c in result.choices if c.point.rule == "confidence"]
    width = 0.8 / max(len(mine), 1)
    for n, point in enumerate(mine):
        total = max(sum(point.histogram), 1)
        at = [l + (n - (len(mine) - 1) / 2) * width for l in range(result.n_layers + 1)]
        shares = [count / total for count in point.histogram]
        axes.bar(at, shares, width, color=COLOURS[n], label=f"{point.map}, λ {point.at:.3f}")
    axes.set_xlabel("blocks run")
    axes.set_ylabel(f"share of rows, target {result.settings['target']:.0%}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)


def plot_alternation(result: Alternation, path: str | Path) -> None:
    """Precision@1 against blocks run, a curve a kind of schedule. Raises EmbspaceError."""
    with drawn(path, 5.5, 3.6) as figure:
        axes = figure.subplots()
        kinds = dict.fromkeys(score.name.partition(":")[0] for score in result.scores)
        for n, kind in enumerate(kind for kind in kinds if kind != "full"):
            mine = [s for s in result.scores if s.name.partition(":")[0] in (kind, "full")]
            mine = [s for s in mine if s.name != "full" or kind != "rr"]
            mine.sort(key=lambda s: (s.n_run, s.name))
            look: dict[str, Any] = _look(n) | ({"linestyle": ""} if kind == "rr" else {})
            x = [s.n_run for s in mine]
            axes.plot(x, [s.precision[1] for s in mine], label=kind, **look)
            if kind != "rr":
                low, high = ends(s.precision_interval for s in mine)
                axes.fill_between(x, low, high, color=COLOURS[n], alpha=0.15, linewidth=0)
        axes.set_xlabel(f"blocks run (of {result.n_layers})")
        axes.set_ylabel("Precision@1")
        axes.legend(frameon=False, fontsize=8)


def _look(n: int) -> dict[str, Any]:
    n %= len(COLOURS)
    return {"color": COLOURS[n], "linestyle": DASHES[n], "marker": MARKS[n], "markersize": 3}
