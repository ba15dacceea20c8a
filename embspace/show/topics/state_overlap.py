"""How often activated vectors name the tokens of the state: R_k, aligned and permuted."""

from pathlib import Path

from ...evidence.state_overlap import LayerOverlap, StateOverlap
from ..figures import panels_by_layer
from ..report import Report, Table, number, of_model, plot, report, text
from ..wording import ends, hashed_text, span


@report.register
def _(result: StateOverlap) -> Report:
    settings = result.settings
    k = settings.get("k")
    what = "the same layer's hidden state" if result.against == "state" else "the final state"
    about = (
        f"share of the state's top {k} tokens named by its {settings.get('m')} "
        "most activated vectors (after the nonlinearity); permuted: by those of another position",
        f"{settings.get('n_positions')} positions of {settings.get('n_texts')} texts",
        hashed_text(settings),
        "95 % intervals over texts",
    )
    tables = [_overlap(part, rows) for part, rows in result.parts().items()]
    return of_model(result, f"R_{k} of activated vectors against {what}", about, tables)


def _overlap(part: str, layers: tuple[LayerOverlap, ...]) -> Table:
    columns = (
        number("layer", lambda r: r.layer),
        text("aligned", lambda r: f"{r.aligned.mean:.3f}", "value"),
        text("", lambda r: span(ends(r.aligned)), "faint", drop=1),
        text("permuted", lambda r: f"{r.permuted.mean:.3f}", "faint"),
        text("", lambda r: span(ends(r.permuted)), "faint", drop=2),
    )
    return Table.of(layers, columns, part)


@plot.register
def _(result: StateOverlap, path: str | Path) -> None:
    """Shares by layer, a panel a part."""
    state = "layer's state" if result.against == "state" else "final state"
    label = f"R_{result.settings.get('k')} with the {state}"
    panels_by_layer(path, result.parts(), ("aligned", "permuted"), label)
