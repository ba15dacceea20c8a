"""How alternation of blocks and jumps looks: a line a schedule, beside the single jump."""

from typing import Any

from ...shorten.alternation import Alternation, ScheduleScore
from ..view import Column, Sheet, View, joined, model_name, origin, shown
from ..views import sheet
from .exits import ends

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


@sheet.register
def _(result: Alternation) -> Sheet:
    settings = result.settings
    title = joined(model_name(result.provenance), "blocks and jumps in alternation")
    about = joined(
        f"Precision@1 on {settings['rows']} rows",
        f"r² and search on {settings['rows_calibration']} others",
        f"text {shown(str(settings['text']))}",
        f"L = {result.n_layers}",
    )
    kinds = dict.fromkeys(score.name.partition(":")[0] for score in result.scores)
    views = tuple(_view(result, kind) for kind in kinds if kind != "full")
    return Sheet(
        title, about, views, (MARKS, *result.notes, *origin(result.provenance, result.settings))
    )


def _view(result: Alternation, kind: str) -> View:
    mine = [s for s in result.scores if s.name.partition(":")[0] == kind]
    beside = kind != "single" and any(result.single(s.n_run) for s in mine)
    columns = (
        *((Column("a,b", "text", "key"),) if kind == "rr" else ()),
        Column("run", "number"),
        Column("schedule", "text", "key"),
        Column("Prec@1", "text", "value"),
        Column("", "text", "faint", drop=2),
        *((Column("single", "text", "faint"),) if beside else ()),
        Column("product", "text", "faint", drop=1),
        *((Column("calibration", "text", "faint", drop=3),) if kind == "best" else ()),
    )
    rows = tuple(_row(result, score, kind, beside) for score in sorted(mine, key=_order))
    return View(columns, rows, f"{kind}: {NAMES[kind]}")


def _order(score: ScheduleScore) -> tuple[int, str]:
    return score.n_run, score.name


def _row(result: Alternation, score: ScheduleScore, kind: str, beside: bool) -> tuple[Any, ...]:
    single = result.single(score.n_run)
    calibrated = score.calibrated
    return (
        *((score.name.partition(":")[2],) if kind == "rr" else ()),
        score.n_run,
        score.schedule,
        f"{score.precision[1]:.3f}",
        ends(score.precision_interval),
        *((f"{single.precision[1]:.3f}" if single else "",) if beside else ()),
        f"{score.product:.3g}",
        *(("" if calibrated is None else f"{calibrated:.3f}",) if kind == "best" else ()),
    )
