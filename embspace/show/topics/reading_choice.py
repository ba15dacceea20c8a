"""Which reading means something: readings by band of layers, the best of each first."""

from ...evidence.reading_choice import MeasuredReading, ReadingChoice
from ..report import Report, Table, number, report, text
from ..wording import ends, joined, model_name, origin, shown, span

MEASURES = (
    "recall: mean over relations of the largest share of pairs that a head promotes beyond chance "
    "(interval over relations); heads: that hold a relation; agreement: of W_VO's rows with what "
    "heads write on the text, mean over heads (interval over texts)."
)


@report.register
def _(result: ReadingChoice) -> Report:
    columns = [
        text("layers", lambda one: "{}-{}".format(*one.layers), "key"),
        text("reading", lambda one: one.reading),
        text("norms", lambda one: one.norm, "faint", drop=3),
        text("recall", lambda one: f"{one.recall.mean:.3f}", "value"),
        text("", lambda one: span(ends(one.recall)), "faint", drop=2),
        number("heads", lambda one: one.heads),
        text("best", _best, drop=1),
        text("agreement", lambda one: f"{one.agreement.mean:.3f}" if one.agreement else ""),
        text("", lambda one: span(ends(one.agreement)) if one.agreement else "", "faint", drop=2),
    ]
    bands = [one.layers for one in result]
    gaps = [n for n in range(1, len(bands)) if bands[n] != bands[n - 1]]
    said = result.settings
    return Report(
        joined(model_name(result.provenance), "which reading of heads means something?"),
        joined(
            f"{said.get('relations')} relations, {said.get('pairs')} pairs",
            f"{said.get('n_texts')} texts of {shown(said.get('text'))}",
        ),
        (Table.of(result, columns, breaks=gaps),),
        (MEASURES, *result.notes, *origin(result.provenance)),
        lead=result.advice,
    )


def _best(one: MeasuredReading) -> str:
    return f"{one.best} {shown(one.relation)}" if one.best else ""
