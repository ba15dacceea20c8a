"""How fine-tuning looks: its epochs, and what it changed in the weights."""

from pathlib import Path
from typing import Any

from ...between.diff_result import Difference, MovedRow
from ...between.finetune import FineTuning
from ...between.task_words import WordScore
from ..figures import COLOURS, drawn, legend
from ..report import Report, Table, number, of_model, plot, report, text, token
from ..wording import joined, model_name, origins, shown, span, written
from .alignment import p_value
from .stitching import percent

ENDS = "±: tokens of the largest scores of x E and of −x E, x being tuned minus base"
WIDTH = 0.38  # of a bar of the figure


@report.register
def _(result: FineTuning) -> Report:
    settings, data = result.settings, result.settings["data"]
    about = (
        f"last {settings['blocks']} blocks and a head for {', '.join(map(shown, result.labels))}",
        f"{data['n_train']} texts, {data['n_validation']} to choose the epoch",
        f"rate {settings['rate']:g}",
        f"seed {settings['seed']}",
    )
    columns = (
        number("epoch", lambda e: e.number),
        number("loss", lambda e: e.loss),
        text("validation", lambda e: percent(e.validation), "value"),
        text("95 % interval", lambda e: span(e.validation.interval, ".1%"), "faint"),
        text("", lambda e: "kept" if e.number == result.kept else "", "good"),
    )
    test = (
        f"Test: {percent(result.test)} ({span(result.test.interval, '.1%')}, {result.test.n} "
        f"texts, scored once); chance {result.chance:.1%}."
    )
    saved = f"Saved in {shown(result.folder)}."
    title = f"fine-tuned on {shown(data['source'])}"
    return of_model(result, title, about, [Table.of(result.epochs, columns)], (test, saved))


@report.register
def _(result: Difference) -> Report:
    base, tuned = (model_name(result.provenance[side]) for side in ("base", "tuned"))
    listed = result.word_list
    about = joined(
        f"{result.settings['scored']} most moved rows a layer are scored",
        f"words: {shown(listed['name'])}, {listed['tokens']} tokens",
        ENDS,
    )
    tables = [_classifier(result.classifier)] if result.classifier else []
    tables += [_words(result)] if any(result.words.values()) else []
    tables += [_moved(result, name) for name in result.groups]
    names = {side: side.capitalize() for side in result.provenance}
    return Report(
        joined(f"{tuned} − {base}", "what fine-tuning changed"),
        about,
        tuple(tables),
        (*result.notes, *origins(result.provenance, **names)),
    )


def _words(result: Difference) -> Table:
    def score(cell: Any) -> Any:
        """A cell of (group, score); empty for a group that did not move."""
        return lambda row: "" if row[1] is None else cell(row[1])

    columns = (
        text("group", lambda row: row[0], "key"),
        text("on the list", lambda row: _share(row[1]), "value"),
        text("chance", score(lambda s: f"{s.chance:.1%}"), "faint"),
        text("p", score(lambda s: p_value(s.p))),
        text("turned", score(lambda s: written(s.turned, ".1%")), "faint", drop=1),
        text("p turned", score(lambda s: p_value(s.p_turned))),
        text("base rows", score(lambda s: written(s.base, ".1%")), "faint", drop=2),
        number("rows", lambda row: row[1].n_vectors if row[1] else 0, "faint", drop=3),
    )
    title = "share of the task's words among the tokens at either end"
    return Table.of(result.words.items(), columns, title)


def _share(score: WordScore | None) -> str:
    return "unmoved" if score is None else f"{score.share:.1%}"


# Of (layer, row); a classifier's rows have no layer.
_MOVED = (
    number("norm", lambda at: at[1].norm, digits=3),
    text("of its own", lambda at: written(at[1].share, ".1%"), "faint", drop=1),
    token("+", lambda at: " ".join(at[1].up), "promoted"),
    token("−", lambda at: " ".join(at[1].down), "asks"),
)


def _moved(result: Difference, name: str) -> Table:
    changes = result.of_group(name)
    columns = (
        number("layer", lambda at: at[0]),
        text("vector", lambda at: at[1].where),
        *_MOVED,
    )
    moved = [f"{c.layer}: {c.share:.2%}" for c in changes if c.n_moved]
    title = f"{name}: change over the layer's norm, " + (", ".join(moved) or "none")
    rows = [(change.layer, row) for change in changes for row in change.rows]
    return Table.of(rows, columns, title)


def _classifier(rows: tuple[MovedRow, ...]) -> Table:
    norm, _, up, down = _MOVED
    columns = (text("label", lambda at: shown(at[1].where), "key"), norm, up, down)
    title = "classifier: direction of each label, less their mean"
    return Table.of([(None, row) for row in rows], columns, title)


@plot.register
def _(result: Difference, path: str | Path) -> None:
    """The share of listed words by group, beside chance."""
    found = {name: score for name, score in result.words.items() if score is not None}
    base, tuned = (model_name(result.provenance[side]) for side in ("base", "tuned"))
    with drawn(path, max(3.4, 0.75 * len(found) + 1.2), 2.9) as figure:
        axes = figure.subplots()
        for n, (name, field) in enumerate(
            (("moved rows", "share"), ("tokens at random", "chance"))
        ):
            heights = [100 * getattr(score, field) for score in found.values()]
            places = [x + (n - 0.5) * WIDTH for x in range(len(found))]
            hatch = "//" if n else ""  # told apart in grey too
            axes.bar(places, heights, WIDTH, label=name, color=COLOURS[n], hatch=hatch)
        axes.set_xticks(range(len(found)), list(found))
        axes.set_ylabel(f"words of {result.word_list['name']} (% of tokens)")
        axes.set_title(f"{tuned} − {base}", fontsize=9)
        legend(axes)
