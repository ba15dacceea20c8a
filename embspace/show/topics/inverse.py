"""How well E^T and E^+ stand in for the inverse of E, by the entries kept."""

from pathlib import Path

from ...evidence.inverse_check import InverseCheck
from ...notation import INVERSES
from ..figures import PANEL, drawn, legend, look, require_plot
from ..report import Report, Table, number, of_model, plot, report, text

INVERSE_NAMES = {"transpose": "E^T", "pinv": "E^+"}
VECTOR_NAMES = {"normal": "normal vectors", "values": "FF values", "states": "hidden states"}


@report.register
def _(result: InverseCheck) -> Report:
    about = (
        "cosine between X X^T and keep_k(X E) keep_k(X E'^T)^T, which keeps the k entries of a "
        "row that are largest in absolute value; the last k is the whole vocabulary"
    )
    tables = [_by_kept(result, name) for name in _vectors(result)]
    return of_model(result, "E^T against E^+ as the inverse of E", [about], tables)


def _vectors(result: InverseCheck) -> list[str]:
    return list(dict.fromkeys(point.vectors for point in result.points))


def _by_kept(result: InverseCheck, name: str) -> Table:
    kept = dict.fromkeys(point.k for point in result.points if point.vectors == name)
    columns = (
        number("k", lambda k: k),
        text("E^T", lambda k: f"{result.cosine(name, 'transpose', k):.3f}", "value"),
        text("E^+", lambda k: f"{result.cosine(name, 'pinv', k):.3f}", "key"),
    )
    n = result.settings.get("n", {}).get(name)
    return Table.of(kept, columns, f"{n} {VECTOR_NAMES[name]}")


@plot.register
def _(result: InverseCheck, path: str | Path) -> None:
    """Cosines by the entries kept, a panel a kind of vector."""
    require_plot(path)
    from matplotlib.ticker import NullFormatter

    names = _vectors(result)
    with drawn(path, PANEL * len(names), 2.4) as figure:
        panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
        for axes, name in zip(panels, names, strict=True):
            for n, inverse in enumerate(INVERSES):
                points = [p for p in result.points if (p.vectors, p.inverse) == (name, inverse)]
                x, y = [p.k for p in points], [p.cosine for p in points]
                axes.plot(x, y, label=INVERSE_NAMES[inverse], **look(n))
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:.0f}")  # powers are maths, which we do not parse
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_title(VECTOR_NAMES[name])
            axes.set_xlabel("entries kept (k)")
        panels[0].set_ylabel("cosine with X X^T")
        legend(panels[0])
