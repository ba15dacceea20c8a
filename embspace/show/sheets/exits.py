"""How early exit looks: what is saved for a target, the curve, where rows leave, generated text."""

from ...intervals import Interval
from ...shorten.exit_result import ExitChoice, ExitGain, ExitPoint, Exits
from ...shorten.generated import Generation
from ..view import Column, Sheet, View, joined, model_name, origin, shown
from ..views import sheet

BAR = 24  # cells of a bar of 1
RULE = (
    "λ and number of blocks are chosen on the calibration rows, all other figures are of the "
    "scoring rows; intervals (95 %) draw the texts of both again and make the choice anew. What "
    "stays is near the target only: to compare, saved where exactly the target stays is read off "
    "the sweep on the scoring rows. Net: every prediction looked at on the way paid for, in blocks."
)


def ends(interval: Interval, percent: bool = False) -> str:
    """`0.912 … 0.956`; nothing where there is no interval."""
    if interval is None:
        return ""
    low, high = interval
    return f"{low:.1%} … {high:.1%}" if percent else f"{low:.3f} … {high:.3f}"


def bar(share: float, cells: int = BAR) -> str:
    """A share of 1 as a bar."""
    return "#" * round(max(0.0, min(1.0, share)) * cells)


@sheet.register
def _(result: Exits) -> Sheet:
    settings = result.settings
    title = joined(
        model_name(result.provenance), f"leaving early, {settings['target']:.0%} of answers kept"
    )
    about = joined(
        f"{settings['rows']} rows scored, {settings['rows_calibration']} to calibrate",
        f"text {shown(str(settings['text']))}",
        f"L = {result.n_layers} blocks, N = {settings['mean_length']:.1f}, the mean of t + 1",
        f"a look costs {settings['check_cost']:.1f} blocks",
    )
    names = list(dict.fromkeys(point.map for point in result.points))
    curves = (_curve(result, name) for name in names)
    views = (_choices(result), _left(result), _front(result), *curves)
    gains = tuple(_gain(gain, settings["target"]) for gain in result.gains)
    notes = (*gains, RULE, *result.notes, *origin(result.provenance, settings))
    return Sheet(title, about, views, notes, lead=answer_line(result))


def answer_line(result: Exits) -> str:
    """What leaving early saves at best, what stays of the answers, and what is left of it net."""
    best = max((choice.point for choice in result.choices), key=lambda point: point.saved)
    target = f"{result.settings['target']:.0%}"
    if best.saved <= 0:
        return f"Leaving early saves nothing where {target} of the answers are to stay."
    net = f"net of looking at predictions on the way {best.net:+.1%}"
    return (
        f"{best.map}, {best.rule} exit at {at_line(best)}: {best.saved:.1%} of the blocks saved, "
        f"{best.precision[1]:.1%} of the answers kept; {net}."
    )


def _choices(result: Exits) -> View:
    columns = (
        Column("exit", "text", "key"),
        Column("at", "text"),
        Column("", "text", "faint", drop=3),
        Column("saved", "text", "value"),
        Column("", "text", "faint", drop=1),
        Column("kept", "text", "value"),
        Column("", "text", "faint", drop=2),
        Column(f"saved at {result.settings['target']:.0%}", "text", "value"),
        Column("", "text", "faint", drop=1),
        Column("Prec@10", "text", drop=5),
        Column("net", "text", drop=4),
    )
    rows = tuple(
        (
            f"{c.point.map} {c.point.rule}",
            at_line(c.point),
            _span(c),
            f"{c.point.saved:.1%}",
            ends(c.point.saved_interval, percent=True),
            f"{c.point.precision[1]:.1%}",
            ends(c.point.precision_interval, percent=True),
            f"{c.saved_at_target:.1%}",
            ends(c.saved_at_target_interval, percent=True),
            f"{c.point.precision[10]:.3f}",
            f"{c.point.net:+.1%}",
        )
        for c in result.choices
    )
    return View(columns, rows, "chosen")


def _gain(gain: ExitGain, target: float) -> str:
    """`mat saves 3.1 points more than id by confidence exit where both keep 95 % (…).`"""
    more = "more" if gain.saved >= 0 else "less"
    span = ""
    if gain.saved_interval is not None:
        low, high = gain.saved_interval
        span = f" (95 % interval {100 * low:+.1f} … {100 * high:+.1f})"
    return (
        f"{gain.map} saves {100 * abs(gain.saved):.1f} points {more} than id by {gain.rule} exit "
        f"where both keep {target:.0%}{span}."
    )


def at_line(point: ExitPoint) -> str:
    """`λ 0.42` or `20 blocks`."""
    return f"λ {point.at:.3f}" if point.rule == "confidence" else f"{point.at:.0f} blocks"


def _span(choice: ExitChoice) -> str:
    low, high = choice.at_interval
    digits = 3 if choice.point.rule == "confidence" else 0
    return f"{low:.{digits}f} … {high:.{digits}f}"


def _left(result: Exits) -> View:
    """The exit histograms of the chosen confidence exits."""
    mine = [c.point for c in result.choices if c.point.rule == "confidence"]
    most = max((max(point.histogram) for point in mine), default=1)
    columns = [Column("left after", "number")]
    for n, point in enumerate(mine):
        columns += [Column(point.map, "number"), Column("", "text", "value" if n else "key", n + 1)]
    rows = tuple(
        (l, *(cell for p in mine for cell in (p.histogram[l], bar(p.histogram[l] / most, 12))))
        for l in range(result.n_layers + 1)
    )
    return View(tuple(columns), rows, "rows by blocks run, chosen confidence exits")


def _curve(result: Exits, name: str) -> View:
    columns = (
        Column("λ", "text"),
        Column("blocks", "text"),
        Column("saved", "text", "value"),
        Column("Prec@1", "text", "value"),
        Column("", "text", "key", drop=1),
    )
    rows = tuple(
        (
            f"{p.at:.3f}",
            f"{p.blocks:.2f}",
            f"{p.saved:.1%}",
            f"{p.precision[1]:.3f}",
            bar(p.precision[1]),
        )
        for p in result.points
        if (p.map, p.rule) == (name, "confidence")
    )
    return View(columns, rows, f"{name}: confidence exit over λ")


MOST = 12  # ways of the front that a table shows


def _front(result: Exits) -> View:
    columns = (
        Column("blocks", "text"),
        Column("saved", "text", "value"),
        Column("Prec@1", "text", "value"),
        Column("by", "text", "key"),
    )
    step = max(1, -(-len(result.front) // MOST))
    kept = [*result.front[:-1:step], *result.front[-1:]]
    rows = tuple(
        (
            f"{p.blocks:.2f}",
            f"{p.saved:.1%}",
            f"{p.precision[1]:.3f}",
            f"{p.map} {p.rule}, {at_line(p)}",
        )
        for p in kept
    )
    return View(columns, rows, f"unbeaten on calibration rows ({len(kept)} of {len(result.front)})")


@sheet.register
def _(result: Generation) -> Sheet:
    settings, measures = result.settings, result.measures
    rule = settings["rule"]
    at = f"λ {settings['at']:.3f}" if rule == "confidence" else f"{settings['at']} blocks"
    title = joined(model_name(result.provenance), f"{rule} exit at {at}, {settings['map']}")
    about = joined(
        f"{result.blocks:.2f} of {result.n_layers} blocks a token",
        f"{result.agreement:.1%} of tokens as the full model after the same text",
        f"{result.same_text:.1%} before the first difference from its own text",
        f"caches filled by {settings['fill']}",
    )
    speed = View(
        (Column("", "text", "key"), Column("seconds", "number"), Column("tokens/s", "number")),
        (
            ("early exit", measures.seconds, result.tokens_per_second),
            ("full model", measures.full_seconds, result.full_tokens_per_second),
        ),
        f"shortest of {len(measures.all_seconds)} runs each",
    )
    fills = View(
        (Column("caches by", "text", "key"), Column("as the full model", "text", "value")),
        tuple((name, f"{share:.1%}") for name, share in measures.agreement.items()),
        "agreement by filling rule",
    )
    columns = (Column("", "text", "key"), Column("text", "token"))
    texts = tuple(
        View(
            columns,
            (("early exit", one.text), ("full model", one.full_text)),
            f"{shown(one.prompt)[:60]} ({one.n_same} of {len(one.ids)} new tokens the same)",
        )
        for one in result.texts
    )
    views = (speed, *((fills,) if len(measures.agreement) > 1 else ()), *texts)
    return Sheet(title, about, views, (result.verdict, *origin(result.provenance, result.settings)))
