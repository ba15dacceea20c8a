"""How early exit looks: what is saved for a target, the curve, where rows leave, generated text."""

from pathlib import Path
from typing import TYPE_CHECKING

from ...shorten.exit_result import ExitChoice, ExitGain, ExitPoint, Exits
from ...shorten.generated import Generation
from ..figures import COLOURS, curve, drawn, legend, whole_numbers
from ..report import Report, Table, number, of_model, plot, report, text, token
from ..wording import shown, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, SHORT_BAR = 24, 12  # cells of a bar of 1
MOST = 12  # ways of the front that a table shows
RULE = (
    "λ and number of blocks are chosen on the calibration rows, all other figures are of the "
    "scoring rows; intervals (95 %) draw the texts of both again and make the choice anew. What "
    "stays is near the target only: to compare, saved where exactly the target stays is read off "
    "the sweep on the scoring rows. Net: every prediction looked at on the way paid for, in blocks."
)


@report.register
def _(result: Exits) -> Report:
    settings = result.settings
    title = f"leaving early, {settings['target']:.0%} of answers kept"
    about = (
        f"{settings['rows']} rows scored, {settings['rows_calibration']} to calibrate",
        f"text {shown(settings['text'])}",
        f"L = {result.n_layers} blocks, N = {settings['mean_length']:.1f}, the mean of t + 1",
        f"a look costs {settings['check_cost']:.1f} blocks",
    )
    curves = (_sweep(result, name) for name in dict.fromkeys(p.map for p in result.points))
    gains = (_gain(gain, settings["target"]) for gain in result.gains)
    tables = (_chosen(result), _where_rows_leave(result), _front(result), *curves)
    lead = answer_line(result)
    return of_model(result, title, about, tables, (*gains, RULE), lead=lead)


def answer_line(result: Exits) -> str:
    """What leaving early saves where exactly the target stays, and what the chosen exit does."""
    best = max(result.choices, key=lambda choice: choice.saved_at_target)
    target, point = f"{result.settings['target']:.0%}", best.point
    if best.saved_at_target <= 0:
        return f"Leaving early saves nothing where {target} of the answers are to stay."
    ends = span(best.saved_at_target_interval, ".1%")
    return (
        f"{point.map}, {point.rule} exit: {best.saved_at_target:.1%} of the blocks saved"
        f"{f' ({ends})' if ends else ''} where {target} of the answers stay. As chosen, "
        f"{at_line(point)}: {point.saved:.1%} saved, {point.precision[1]:.1%} kept; net of looking "
        f"at predictions on the way {point.net:+.1%}."
    )


def _chosen(result: Exits) -> Table:
    """Saved at equal retention first, with its interval: the columns that a narrow screen keeps."""
    columns = (
        text("exit", lambda c: f"{c.point.map} {c.point.rule}", "key"),
        text("at", lambda c: at_line(c.point)),
        text("", _at_interval, "faint", drop=3),
        text(
            f"saved at {result.settings['target']:.0%}",
            lambda c: f"{c.saved_at_target:.1%}",
            "value",
        ),
        text("", lambda c: span(c.saved_at_target_interval, ".1%"), "faint"),
        text("kept", lambda c: f"{c.point.precision[1]:.1%}", "value"),
        text("", lambda c: span(c.point.precision_interval, ".1%"), "faint", drop=6),
        text("saved", lambda c: f"{c.point.saved:.1%}", "value", drop=5),
        text("", lambda c: span(c.point.saved_interval, ".1%"), "faint", drop=4),
        text("Prec@10", lambda c: f"{c.point.precision[10]:.3f}", drop=1),
        text("net", lambda c: f"{c.point.net:+.1%}", drop=2),
    )
    return Table.of(result.choices, columns, "chosen")


def _gain(gain: ExitGain, target: float) -> str:
    """`mat saves 3.1 points more than id by confidence exit where both keep 95 % (…).`"""
    more = "more" if gain.saved >= 0 else "less"
    within = ""
    if gain.saved_interval is not None:
        low, high = gain.saved_interval
        within = f" (95 % interval {100 * low:+.1f} … {100 * high:+.1f})"
    return (
        f"{gain.map} saves {100 * abs(gain.saved):.1f} points {more} than id by {gain.rule} exit "
        f"where both keep {target:.0%}{within}."
    )


def at_line(point: ExitPoint) -> str:
    """`λ 0.42` or `20 blocks`."""
    return f"λ {point.at:.3f}" if point.rule == "confidence" else f"{point.at:.0f} blocks"


def _at_interval(choice: ExitChoice) -> str:
    return span(choice.at_interval, ".3f" if choice.point.rule == "confidence" else ".0f")


def _confident(result: Exits) -> list[ExitPoint]:
    """The chosen confidence exits, one a lens."""
    return [c.point for c in result.choices if c.point.rule == "confidence"]


def _where_rows_leave(result: Exits) -> Table:
    """The exit histograms of the chosen confidence exits."""
    mine = _confident(result)
    most = max((max(point.histogram) for point in mine), default=1)
    columns = [number("left after", lambda layer: layer)]
    for n, p in enumerate(mine):
        tone = "value" if n else "key"
        columns += [
            number(p.map, lambda layer, p=p: p.histogram[layer]),
            text("", lambda layer, p=p: bar(p.histogram[layer] / most, SHORT_BAR), tone, n + 1),
        ]
    layers = range(result.n_layers + 1)
    return Table.of(layers, columns, "rows by blocks run, chosen confidence exits")


def bar(share: float, cells: int = BAR) -> str:
    """A share of 1 as a bar."""
    return "#" * round(max(0.0, min(1.0, share)) * cells)


def _sweep(result: Exits, name: str) -> Table:
    points = [p for p in result.points if (p.map, p.rule) == (name, "confidence")]
    columns = (
        text("λ", lambda p: f"{p.at:.3f}"),
        text("blocks", lambda p: f"{p.blocks:.2f}"),
        text("saved", lambda p: f"{p.saved:.1%}", "value"),
        text("Prec@1", lambda p: f"{p.precision[1]:.3f}", "value"),
        text("", lambda p: bar(p.precision[1]), "key", drop=1),
    )
    return Table.of(points, columns, f"{name}: confidence exit over λ")


def _front(result: Exits) -> Table:
    step = max(1, -(-len(result.front) // MOST))
    kept = [*result.front[:-1:step], *result.front[-1:]]
    columns = (
        text("blocks", lambda p: f"{p.blocks:.2f}"),
        text("saved", lambda p: f"{p.saved:.1%}", "value"),
        text("Prec@1", lambda p: f"{p.precision[1]:.3f}", "value"),
        text("by", lambda p: f"{p.map} {p.rule}, {at_line(p)}", "key"),
    )
    title = f"unbeaten on calibration rows ({len(kept)} of {len(result.front)})"
    return Table.of(kept, columns, title)


@plot.register
def _(result: Exits, path: str | Path) -> None:
    """Curves of every lens and rule, chosen ones ringed; where rows leave. [DIN] §6"""
    with drawn(path, 9.0, 3.4) as figure:
        axes, left = figure.subplots(1, 2, width_ratios=(3, 2))
        for n, (name, rule) in enumerate(dict.fromkeys((p.map, p.rule) for p in result.points)):
            points = [p for p in result.points if (p.map, p.rule) == (name, rule)]
            points.sort(key=lambda p: p.blocks)
            x, y = [p.blocks for p in points], [p.precision[1] for p in points]
            curve(axes, n, f"{name} {rule}", x, y, (p.precision_interval for p in points))
            chosen = result.choice(name, rule).point
            ring = {"markersize": 9, "color": COLOURS[n % 7], "markerfacecolor": "none"}
            axes.plot([chosen.blocks], [chosen.precision[1]], "o", **ring)
        axes.axhline(result.settings["target"], color="#888888", linestyle=":", linewidth=1)
        axes.set_xlabel(f"mean blocks run (of {result.n_layers})")
        axes.set_ylabel("Precision@1")
        legend(axes)
        _histogram(left, result)


def _histogram(axes: "Axes", result: Exits) -> None:
    mine = _confident(result)
    width = 0.8 / max(len(mine), 1)
    for n, point in enumerate(mine):
        total = max(sum(point.histogram), 1)
        at = [l + (n - (len(mine) - 1) / 2) * width for l in range(result.n_layers + 1)]
        shares = [count / total for count in point.histogram]
        axes.bar(at, shares, width, color=COLOURS[n], label=f"{point.map}, λ {point.at:.3f}")
    axes.set_xlabel("blocks run")
    axes.set_ylabel(f"share of rows, target {result.settings['target']:.0%}")
    whole_numbers(axes.xaxis)
    legend(axes)


@report.register
def _(result: Generation) -> Report:
    settings, measures = result.settings, result.measures
    rule = settings["rule"]
    at = f"λ {settings['at']:.3f}" if rule == "confidence" else f"{settings['at']} blocks"
    about = (
        f"{result.blocks:.2f} of {result.n_layers} blocks a token",
        f"{result.agreement:.1%} of tokens as the full model after the same text",
        f"{result.same_text:.1%} before the first difference from its own text",
        f"caches filled by {settings['fill']}",
    )
    speeds = (
        ("early exit", measures.seconds, result.tokens_per_second),
        ("full model", measures.full_seconds, result.full_tokens_per_second),
    )
    columns = (
        text("", lambda row: row[0], "key"),
        number("seconds", lambda row: row[1]),
        number("tokens/s", lambda row: row[2]),
    )
    tables = [Table.of(speeds, columns, f"shortest of {len(measures.all_seconds)} runs each")]
    if len(measures.agreement) > 1:
        fills = (
            text("caches by", lambda row: row[0], "key"),
            text("as the full model", lambda row: f"{row[1]:.1%}", "value"),
        )
        tables.append(Table.of(measures.agreement.items(), fills, "agreement by filling rule"))
    written = (text("", lambda row: row[0], "key"), token("text", lambda row: row[1]))
    for one in result.texts:
        same = f"({one.n_same} of {len(one.ids)} new tokens the same)"
        rows = (("early exit", one.text), ("full model", one.full_text))
        tables.append(Table.of(rows, written, f"{shown(one.prompt)[:60]} {same}"))
    title = f"{rule} exit at {at}, {settings['map']}"
    return of_model(result, title, about, tables, (result.verdict,))
