"""Accuracy of stitched models by the blocks kept, a line a number of blocks transplanted."""

from pathlib import Path

from ...between.stitch_result import Cut, Stitching
from ..view import clipped, model_name
from .figures import COLOURS, DASHES, MARKS, drawn

NAME = 28


def plot_stitching(result: Stitching, path: str | Path) -> None:
    """Write the accuracies with their intervals, chance and B alone; raises EmbspaceError."""
    a, b = (clipped(model_name(result.provenance[side]), NAME) for side in ("a", "b"))
    with drawn(path, 5.6, 3.8) as figure:
        axes = figure.subplots()
        for n, (count, cuts) in enumerate(_lines(result).items()):
            kept = [cut.kept for cut in cuts]
            shares = [cut.accuracy.share for cut in cuts]
            lows, highs = zip(*(cut.accuracy.interval for cut in cuts), strict=True)
            look = {"color": COLOURS[n % 7], "linestyle": DASHES[n % 7], "marker": MARKS[n % 7]}
            axes.plot(kept, shares, label=f"last {count} of B", markersize=4, **look)  # type: ignore[arg-type]
            axes.fill_between(kept, lows, highs, color=COLOURS[n % 7], alpha=0.15, linewidth=0)
        axes.axhline(result.own.share, color="black", linewidth=1.0, label="B alone")
        axes.axhline(result.chance, color="0.5", linewidth=1.0, linestyle=":", label="chance")
        axes.set_xlabel(f"blocks kept of {a}")
        axes.set_ylabel(f"accuracy (95 % interval), {result.own.n} texts")
        axes.set_title(f"{a} stitched onto {b}")
        axes.set_xticks(sorted({cut.kept for cut in result.cuts}))
        axes.legend(fontsize=8, frameon=False)


def _lines(result: Stitching) -> dict[int, list[Cut]]:
    """Cuts by the blocks transplanted, in the order of the blocks kept."""
    lines: dict[int, list[Cut]] = {}
    for cut in sorted(result.cuts, key=lambda cut: cut.kept):
        lines.setdefault(cut.transplanted, []).append(cut)
    return lines
