"""How alternation of blocks and jumps looks: a line a schedule, beside the single jump."""

from pathlib import Path
from typing import Any

from ...shorten.alternation import Alternation, ScheduleScore
from ..figures import curve, drawn, legend, look
from ..report import Report, Table, number, of_model, plot, report, text
from ..wording import shown, span, written

MARKS = (
    "# runs, . is jumped over by the map between the states around it; all positions of a sequence "
    "are mapped. Single: the same number of blocks, then one jump. Product: of the jumps' held-out "
    "r². Intervals: 95 %, over texts."
)
NAMES = {
    "full": "the model itself",
    "single": "blocks, then one jump",
    "rr": "weighted round robin",
    "r2": "largest product of r²",
    "best": "found by measuring on calibration rows",
}


@report.register
def _(result: Alternation) -> Report:
    settings = result.settings
    about = (
        f"Precision@1 on {settings['rows']} rows",
        f"r² and search on {settings['rows_calibration']} others",
        f"text {shown(settings['text'])}",
        f"L = {result.n_layers}",
    )
    tables = [_schedules(result, kind) for kind in _kinds(result)]
    return of_model(result, "blocks and jumps in alternation", about, tables, (MARKS,))


def _kinds(result: Alternation) -> list[str]:
    kinds = dict.fromkeys(map(_kind, result.scores))
    return [kind for kind in kinds if kind != "full"]


def _kind(score: ScheduleScore) -> str:
    return score.name.partition(":")[0]


def _schedules(result: Alternation, kind: str) -> Table:
    mine = [score for score in result.scores if _kind(score) == kind]
    single = {n: each for n in {score.n_run for score in mine} if (each := result.single(n))}
    columns = [
        text("a,b", lambda s: s.name.partition(":")[2], "key"),
        number("run", lambda s: s.n_run),
        text("schedule", lambda s: s.schedule, "key"),
        text("Prec@1", lambda s: f"{s.precision[1]:.3f}", "value"),
        text("", lambda s: span(s.precision_interval), "faint", drop=2),
        text("single", lambda s: _precision(single.get(s.n_run)), "faint"),
        text("product", lambda s: f"{s.product:.3g}", "faint", drop=1),
        text("calibration", lambda s: written(s.calibrated, ".3f"), "faint", drop=3),
    ]
    there = {"a,b": kind == "rr", "calibration": kind == "best"}
    there["single"] = kind != "single" and bool(single)
    mine.sort(key=lambda score: (score.n_run, score.name))
    columns = [column for column in columns if there.get(column.header, True)]
    return Table.of(mine, columns, f"{kind}: {NAMES[kind]}")


def _precision(score: ScheduleScore | None) -> str:
    return f"{score.precision[1]:.3f}" if score else ""


@plot.register
def _(result: Alternation, path: str | Path) -> None:
    """Precision@1 against blocks run, a curve a kind of schedule. [DIN] §6"""
    with drawn(path, 5.5, 3.6) as figure:
        axes = figure.subplots()
        for n, kind in enumerate(_kinds(result)):
            kinds = (kind,) if kind == "rr" else (kind, "full")
            mine = [score for score in result.scores if _kind(score) in kinds]
            mine.sort(key=lambda score: (score.n_run, score.name))
            x, y = [s.n_run for s in mine], [s.precision[1] for s in mine]
            if kind == "rr":
                points: dict[str, Any] = look(n) | {"linestyle": ""}
                axes.plot(x, y, label=kind, **points)
            else:
                curve(axes, n, kind, x, y, (s.precision_interval for s in mine))
        axes.set_xlabel(f"blocks run (of {result.n_layers})")
        axes.set_ylabel("Precision@1")
        legend(axes)
