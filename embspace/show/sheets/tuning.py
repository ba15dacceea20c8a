"""How fine-tuning, stitching and differences look."""

from typing import Any

from ...between.accuracy import Accuracy
from ...between.diff_result import Difference, LayerChange, MovedRow
from ...between.finetune import FineTuning
from ...between.stitch_result import REACHED, Cut, Stitching
from ...between.task_words import WordScore
from ..view import Column, Sheet, View, joined, model_name, origin, shown
from ..views import sheet
from .alignment import coverage_line, p_value

BAR = 20  # cells of a bar from 0 to 1
ENDS = "±: tokens of the largest scores of x E and of −x E, x being tuned minus base"


def percent(found: Accuracy | None) -> str:
    """`81.0 %`; nothing where nothing was measured."""
    return "" if found is None else f"{found.share:.1%}"


def interval(found: Accuracy) -> str:
    """`77.0 … 84.4 %`."""
    low, high = found.interval
    return f"{100 * low:.1f} … {100 * high:.1f} %"


@sheet.register
def _(result: FineTuning) -> Sheet:
    settings, data = result.settings, result.settings["data"]
    title = joined(model_name(result.provenance), f"fine-tuned on {shown(data['source'])}")
    about = joined(
        f"last {settings['blocks']} blocks and a head for {', '.join(map(shown, result.labels))}",
        f"{data['n_train']} texts, {data['n_validation']} to choose the epoch",
        f"rate {settings['rate']:g}",
        f"seed {settings['seed']}",
    )
    columns = (
        Column("epoch", "number"),
        Column("loss", "number"),
        Column("validation", "text", "value"),
        Column("95 % interval", "text", "faint"),
        Column("", "text", "good"),
    )
    rows = tuple(
        (e.number, e.loss, percent(e.validation), interval(e.validation), _mark(e, result))
        for e in result.epochs
    )
    test = (
        f"Test: {percent(result.test)} ({interval(result.test)}, {result.test.n} texts, scored "
        f"once); chance {result.chance:.1%}."
    )
    notes = (test, f"Saved in {shown(result.folder)}.", *result.notes, *origin(result.provenance))
    return Sheet(title, about, (View(columns, rows),), notes)


def _mark(epoch: Any, result: FineTuning) -> str:
    return "kept" if epoch.number == result.kept else ""


@sheet.register
def _(result: Stitching) -> Sheet:
    a, b = (model_name(result.provenance[side]) for side in ("a", "b"))
    settings = result.settings
    title = joined(f"A {a} → B {b}", f"stitched by {_kernel(settings['kernel'])}")
    about = joined(
        f"{result.own.n} texts of {shown(str(settings['data']))}",
        f"B alone {percent(result.own)} ({interval(result.own)})",
        f"chance {result.chance:.1%}",
        coverage_line(result.coverage),
    )
    columns = (
        Column("kept of A", "number", "key"),
        Column("last of B", "number", "key"),
        Column("accuracy", "text", "value"),
        Column("95 % interval", "text", "faint"),
        Column("", "text", "value", drop=3),
        Column("turned", "text", "faint", drop=1),
        Column("shuffled", "text", "faint", drop=2),
    )
    rows = tuple(
        (
            cut.kept,
            cut.transplanted,
            percent(cut.accuracy) + (" *" if cut is result.best else ""),
            interval(cut.accuracy),
            bar(cut.accuracy.share),
            percent(cut.turned),
            percent(cut.shuffled),
        )
        for cut in result.cuts
    )
    return Sheet(title, about, (View(columns, rows, breaks=_breaks(result)),), _notes(result))


def bar(share: float) -> str:
    """A line as long as a share of 1."""
    return "━" * round(BAR * share)


def _breaks(result: Stitching) -> frozenset[int]:
    """A gap where another number of blocks is transplanted."""
    counts = [cut.transplanted for cut in result.cuts]
    return frozenset(n for n in range(1, len(counts)) if counts[n] != counts[n - 1])


def _kernel(kind: str) -> str:
    return {"pinv": "E_A E_B⁺", "transpose": "E_A E_Bᵀ, scaled"}[kind]


def _notes(result: Stitching) -> tuple[str, ...]:
    best: Cut = result.best
    said = (
        f"* best on one half of the texts: {best.kept} blocks of A, last {best.transplanted} of B. "
        f"On the other half: {percent(best.scoring)} ({interval(best.scoring)}), "
        f"B alone {percent(result.own_scoring)}."
    )
    reached = (
        f"{result.share_reached:.0%} of the stitched models reach {REACHED:.0%} (in the "
        "paper 30 % do); "
        "turned: a random kernel of equal spectrum; shuffled: tokens paired at random."
    )
    origins = [f"{s.upper()}: {line}" for s in "ab" for line in origin(result.provenance[s])]
    return (said, reached, *result.notes, *origins)


@sheet.register
def _(result: Difference) -> Sheet:
    base, tuned = (model_name(result.provenance[side]) for side in ("base", "tuned"))
    listed = result.word_list
    title = joined(f"{tuned} − {base}", "what fine-tuning changed")
    about = joined(
        f"{result.settings['scored']} most moved rows a layer are scored",
        f"words: {shown(str(listed['name']))}, {listed['tokens']} tokens",
        ENDS,
    )
    views = (_words(result), *(_moved(result, name) for name in result.groups))
    head = (_classifier(result.classifier),) if result.classifier else ()
    views = views if any(result.words.values()) else views[1:]
    origins = [
        f"{side.capitalize()}: {line}"
        for side, provenance in result.provenance.items()
        for line in origin(provenance)
    ]
    return Sheet(title, about, (*head, *views), (*result.notes, *origins))


def _words(result: Difference) -> View:
    columns = (
        Column("group", "text", "key"),
        Column("on the list", "text", "value"),
        Column("chance", "text", "faint"),
        Column("p", "text"),
        Column("turned", "text", "faint", drop=1),
        Column("p turned", "text"),
        Column("base rows", "text", "faint", drop=2),
        Column("rows", "number", "faint", drop=3),
    )
    rows = tuple((name, *_scored(score)) for name, score in result.words.items())
    return View(columns, rows, title="share of the task's words among the tokens at either end")


def _scored(score: WordScore | None) -> tuple[Any, ...]:
    if score is None:
        return ("unmoved", *[""] * 5, 0)
    return (
        f"{score.share:.1%}",
        f"{score.chance:.1%}",
        p_value(score.p),
        "" if score.turned is None else f"{score.turned:.1%}",
        p_value(score.p_turned),
        "" if score.base is None else f"{score.base:.1%}",
        score.n_vectors,
    )


def _moved(result: Difference, name: str) -> View:
    columns = (
        Column("layer", "number"),
        Column("vector", "text"),
        Column("norm", "number", digits=3),
        Column("of its own", "text", "faint", drop=1),
        Column("+", "token", "promoted"),
        Column("−", "token", "asks"),
    )
    changes: tuple[LayerChange, ...] = result.of_group(name)
    rows = tuple((change.layer, *_row(row)) for change in changes for row in change.rows)
    moved = [f"{c.layer}: {c.share:.2%}" for c in changes if c.n_moved]
    title = f"{name}: change over the layer's norm, " + (", ".join(moved) or "none")
    return View(columns, rows, title=title)


def _classifier(rows: tuple[MovedRow, ...]) -> View:
    columns = (
        Column("label", "text", "key"),
        Column("norm", "number", digits=3),
        Column("+", "token", "promoted"),
        Column("−", "token", "asks"),
    )
    cells = tuple(
        (shown(row.where), row.norm, " ".join(row.up), " ".join(row.down)) for row in rows
    )
    return View(columns, cells, title="classifier: direction of each label, less their mean")


def _row(row: MovedRow) -> tuple[Any, ...]:
    share = "" if row.share is None else f"{row.share:.1%}"
    return row.where, row.norm, share, " ".join(row.up), " ".join(row.down)
