"""How stitched models look: accuracy by the blocks kept, a line a number of blocks transplanted."""

from pathlib import Path

from ...between.accuracy import Accuracy
from ...between.stitch_result import REACHED, Cut, Stitching
from ..figures import curve, drawn, legend
from ..report import Report, Table, number, plot, report, text
from ..wording import clipped, joined, model_name, origins, shown, span
from .alignment import coverage_line

BAR = 20  # cells of a bar from 0 to 1
NAME = 28  # cells of a model's name in the figure
KERNELS = {"pinv": "E_A E_B⁺", "transpose": "E_A E_Bᵀ, scaled"}


def percent(found: Accuracy | None) -> str:
    """`81.0%`; nothing where nothing was measured."""
    return "" if found is None else f"{found.share:.1%}"


@report.register
def _(result: Stitching) -> Report:
    a, b = (model_name(result.provenance[side]) for side in ("a", "b"))
    about = joined(
        f"{result.own.n} texts of {shown(result.settings['data'])}",
        f"B alone {percent(result.own)} ({span(result.own.interval, '.1%')})",
        f"chance {result.chance:.1%}",
        coverage_line(result.coverage),
    )
    columns = (
        number("kept of A", lambda cut: cut.kept, "key"),
        number("last of B", lambda cut: cut.transplanted, "key"),
        text("accuracy", lambda c: percent(c.accuracy) + " *" * (c is result.best), "value"),
        text("95 % interval", lambda cut: span(cut.accuracy.interval, ".1%"), "faint"),
        text("", lambda cut: "━" * round(BAR * cut.accuracy.share), "value", drop=3),
        text("turned", lambda cut: percent(cut.turned), "faint", drop=1),
        text("shuffled", lambda cut: percent(cut.shuffled), "faint", drop=2),
    )
    counts = [cut.transplanted for cut in result.cuts]
    breaks = [n for n in range(1, len(counts)) if counts[n] != counts[n - 1]]
    return Report(
        joined(f"A {a} → B {b}", f"stitched by {_way(result)}"),
        about,
        (Table.of(result.cuts, columns, breaks=breaks),),
        (*_notes(result), *result.notes, *origins(result.provenance, a="A", b="B")),
    )


def _way(result: Stitching) -> str:
    """The kernel, and what else was done to the states."""
    carry = result.settings["carry"]
    said = (
        KERNELS[result.settings["kernel"]],
        f"scaled × {carry['scale']:.3g} to B's stream" if carry["match_scale"] else "",
        "after A's final norm" if carry["final_norm"] else "",
        "plus B's positions" if carry["positions"] else "",
    )
    return ", ".join(filter(None, said))


def _notes(result: Stitching) -> tuple[str, str]:
    best: Cut = result.best
    return (
        f"* best on one half of the texts: {best.kept} blocks of A, last {best.transplanted} of B. "
        f"On the other half: {percent(best.scoring)} ({span(best.scoring.interval, '.1%')}), "
        f"B alone {percent(result.own_scoring)}.",
        f"{result.share_reached:.0%} of these cuts reach {REACHED:.0%} (the paper's 30 % is "
        "of models fine-tuned with other seeds); "
        "turned: a random kernel of equal spectrum; shuffled: tokens paired at random.",
    )


@plot.register
def _(result: Stitching, path: str | Path) -> None:
    """The accuracies with their intervals, chance and B alone."""
    a, b = (clipped(model_name(result.provenance[side]), NAME) for side in ("a", "b"))
    with drawn(path, 5.6, 3.8) as figure:
        axes = figure.subplots()
        for n, count in enumerate(dict.fromkeys(c.transplanted for c in _by_kept(result))):
            cuts = [cut for cut in _by_kept(result) if cut.transplanted == count]
            shares = [cut.accuracy.share for cut in cuts]
            intervals = (cut.accuracy.interval for cut in cuts)
            curve(axes, n, f"last {count} of B", [cut.kept for cut in cuts], shares, intervals)
        axes.axhline(result.own.share, color="black", linewidth=1.0, label="B alone")
        axes.axhline(result.chance, color="0.5", linewidth=1.0, linestyle=":", label="chance")
        axes.set_xlabel(f"blocks kept of {a}")
        axes.set_ylabel(f"accuracy (95 % interval), {result.own.n} texts")
        axes.set_title(f"{a} stitched onto {b}")
        axes.set_xticks(sorted({cut.kept for cut in result.cuts}))
        legend(axes)


def _by_kept(result: Stitching) -> list[Cut]:
    return sorted(result.cuts, key=lambda cut: cut.kept)
