"""How alike the keys and values of neurons are: Sim_k of matching and of shuffled pairs."""

from pathlib import Path

from ...evidence.matching_pairs import LayerSimilarity, PairSimilarity
from ..figures import panels_by_layer
from ..report import Report, Table, number, of_model, plot, report, text
from ..wording import ends, settings_line, span


@report.register
def _(result: PairSimilarity) -> Report:
    settings = result.settings
    k, sample = settings.get("k"), settings.get("sample")
    about = (
        "mean with its 95 % interval",
        f"share of related pairs: signed Sim_{k} of at least {settings.get('related', 0):.2f}",
        "all pairs" if sample is None else f"{sample} pairs a layer at most",
        settings_line(settings),
    )
    tables = [_similar(kind, rows) for kind, rows in result.kinds().items()]
    return of_model(result, f"Sim_{k} of matching and of shuffled pairs", about, tables)


def _similar(kind: str, layers: tuple[LayerSimilarity, ...]) -> Table:
    columns = (
        number("layer", lambda r: r.layer),
        text("matching", lambda r: f"{r.matching.mean:.3f}", "value"),
        text("", lambda r: span(ends(r.matching)), "faint", drop=1),
        text("shuffled", lambda r: f"{r.shuffled.mean:.3f}", "faint"),
        text("", lambda r: span(ends(r.shuffled)), "faint", drop=2),
        text("share", lambda r: f"{r.share:.1%}", "value"),
        text("shuffled", lambda r: f"{r.share_shuffled:.1%}", "faint"),
    )
    return Table.of(layers, columns, kind)


@plot.register
def _(result: PairSimilarity, path: str | Path) -> None:
    """Means by layer, a panel a kind of pair."""
    label = f"mean Sim_{result.settings.get('k')} (Jaccard index)"
    panels_by_layer(path, result.kinds(), ("matching", "shuffled"), label)
