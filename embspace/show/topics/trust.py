"""Whether heads do what their readings say: the best first, beside other heads' readings."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...evidence.head_trust import GRADES, RULE, HeadTrust, Trust
from ...notation import Circuit
from ..figures import SIGNED, drawn, whole_numbers
from ..report import Report, Table, number, of_model, plot, report, text
from ..wording import ends, hashed_text, settings_line, span, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@report.register
def _(result: Trust) -> Report:
    about = (
        "own: agreement of the reading with the head; heads, tokens: of other heads' readings, "
        "of its reading of other tokens",
        f"{result.settings.get('n_texts')} texts, {hashed_text(result.settings)}",
        settings_line(result.settings),
    )
    tables = [_graded(result, circuit) for circuit in _circuits(result)]
    return of_model(result, "do heads do what their readings say?", about, tables, (RULE,))


def _circuits(result: Trust) -> list[Circuit]:
    return list(dict.fromkeys(head.circuit for head in result.heads))


def _graded(result: Trust, circuit: Circuit) -> Table:
    """Heads by grade, those of one grade by how well their reading agrees."""
    columns = [
        number("layer", lambda h: h.layer),
        number("head", lambda h: h.head),
        text("grade", lambda h: h.grade, "value"),
        text("own", lambda h: f"{h.own.mean:.2f}"),
        text("", lambda h: span(ends(h.own), ".2f"), "faint", drop=1),
        text("heads", lambda h: written(h.heads, ".2f"), "faint"),
    ]
    if circuit == "vo":
        columns.append(text("tokens", lambda h: written(h.tokens, ".2f"), "faint"))
    heads = [head for head in result.heads if head.circuit == circuit]
    heads.sort(key=lambda head: (GRADES.index(head.grade), -head.own.mean))
    counts = ", ".join(f"{n} {grade}" for grade, n in result.count(circuit).items())
    return Table.of(heads, columns, f"W_{circuit.upper()}: {counts}")


@plot.register
def _(result: Trust, path: str | Path) -> None:
    """Agreement of every head, a panel a circuit."""
    circuits = _circuits(result)
    with drawn(path, 3.4 * len(circuits), 3.0) as figure:
        panels = figure.subplots(1, len(circuits), squeeze=False)[0]
        image = None
        for axes, circuit in zip(panels, circuits, strict=True):
            image = _heads(axes, [head for head in result.heads if head.circuit == circuit])
            axes.set_title(f"W_{circuit.upper()} (dot: strong, ring: some)", fontsize=8)
            axes.set_xlabel("head")
        panels[0].set_ylabel("layer")
        if image is not None:
            figure.colorbar(image, ax=panels.tolist(), label="agreement (correlation)")


def _heads(axes: "Axes", heads: Sequence[HeadTrust]) -> Any:
    """Own agreement, a head a column; those with a grade are marked."""
    high, wide = (1 + max(getattr(h, name) for h in heads) for name in ("layer", "head"))
    shade = [[float("nan")] * wide for _ in range(high)]
    for h in heads:
        shade[h.layer][h.head] = h.own.mean
        if h.grade != "none":
            face = "black" if h.grade == "strong" else "none"
            axes.plot([h.head], [h.layer], "o", color="black", markerfacecolor=face, markersize=4)
    whole_numbers(axes.xaxis, axes.yaxis)
    return axes.imshow(shade, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")  # 0 in the middle
