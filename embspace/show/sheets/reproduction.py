"""How a reproduction looks: the paper's claim, our figure, holds or not, row by row."""

from ...evidence.claims import FAILS, HOLDS, TIED, VOID, Verdict
from ...evidence.reproduction import Reproduction
from ..view import Column, Sheet, View, joined, model_name, shown
from ..views import sheet

TITLES = {
    "jump": "Jump to Conclusions (Yom Din et al. 2024)",
    "embedding": "Analyzing Transformers in Embedding Space (Dar et al. 2022)",
}
QUICK = (
    "--quick: few rows and vectors, so that figures are rough and close calls may fall either way."
)
RULE = (
    "A claim holds where its rule does, on the means measured here; a tie is undecided. Where "
    "their 95 % intervals overlap at a place that decides it, the row says so: it may fall the "
    "other way on other texts."
)


@sheet.register
def _(result: Reproduction) -> Sheet:
    title = joined(TITLES[result.paper], model_name(result.models["model"]))
    columns = (
        Column("claim", "text"),
        Column("where", "text", "faint", drop=2),
        Column("paper", "text", "faint", drop=1),
        Column("ours", "text", "value"),
        Column("", "text", "key"),
    )
    rows = tuple(_row(verdict) for verdict in result.verdicts)
    breaks = frozenset(range(1, len(rows)))
    notes = (QUICK,) if result.quick else ()
    return Sheet(
        title, tally(result), (View(columns, rows, breaks=breaks),), (RULE, *notes, *result.notes)
    )


def tally(result: Reproduction) -> str:
    """`12 hold · 3 do not · 1 undecided · 2 not applicable`."""
    n = result.count()
    tied = f" · {n[TIED]} undecided" if n[TIED] else ""
    return f"{n[HOLDS]} hold · {n[FAILS]} do not{tied} · {n[VOID]} not applicable"


def _row(verdict: Verdict) -> tuple[str, ...]:
    claim = verdict.claim
    return claim.says, claim.place, claim.number, found_line(verdict), verdict.verdict


def found_line(verdict: Verdict) -> str:
    """What was measured, or why nothing was; whether it is a close call."""
    close = "; intervals overlap" if verdict.close else ""
    return shown((verdict.ours or verdict.reason) + close)
