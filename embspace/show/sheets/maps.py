"""How fitted maps look: a line a map to the last state, r² of all pairs as a heat map."""

from typing import Any

from ...maps.inventory import KeptMaps
from ...maps.maps import Maps, PairFit
from ..inventory import size
from ..view import Column, HeatMap, Sheet, View, joined, model_name, origin, shown
from ..views import sheet


@sheet.register
def _(result: Maps) -> Sheet:
    about = result.about
    title = joined(model_name(about), f"{result.kind} maps", f"{about.get('rows')} rows fitted")
    if result.kind == "refined":
        return _refined(result, title)
    rows_scored = about.get("rows_scored")
    held = f"r² on {rows_scored} held-out rows" if rows_scored else "no rows held out"
    said = joined(f"text {shown(str(about.get('text')))}", held, taken_line(about))
    submodules = any("." in pair.source for pair in result.pairs)
    last = str(result.n_layers)
    listed = [p for p in result.pairs if submodules or p.target == last] or list(result.pairs)
    view = View(_columns(submodules), tuple(_row(pair, submodules) for pair in listed))
    maps = () if submodules or len(listed) == len(result.pairs) else (_heat(result),)
    return Sheet(title, said, (view,), (*_notes(result), *origin(about, about)), maps)


def _refined(result: Maps, title: str) -> Sheet:
    """What refining lowers: KL, of each layer's start and of what was kept."""
    about, how = result.about, result.about.get("refined")
    apart = how.get("rows_apart") if isinstance(how, dict) else None
    said = joined(
        f"text {shown(str(about.get('text')))}",
        f"KL(model ‖ map), nats, on the {apart} rows that chose the epoch",
        taken_line(about),
    )
    start = str(about.get("refined_from"))
    columns = (
        Column("layers", "text", "key"),
        Column(f"KL of {start}", "number", "faint"),
        Column("KL refined", "number"),
    )
    rows = tuple((f"{p.source} → {p.target}", *_kl(about, p.source)) for p in result.pairs)
    not_held = (
        f"{start} was fitted on these rows too: for KL and r² on held-out text see `embspace score "
        "--maps FILE`."
    )
    notes = (not_held, *_notes(result))
    return Sheet(title, said, (View(columns, rows),), (*notes, *origin(about, about)))


def _kl(about: dict[str, Any], source: str) -> tuple[float | None, float | None]:
    """KL before and after, of a record that a file may hold in any shape."""
    kl = about.get("kl")
    found = kl.get(source) if isinstance(kl, dict) else None
    if not isinstance(found, list | tuple) or len(found) != 2:
        return None, None
    before, after = (x if isinstance(x, int | float) else None for x in found)
    return before, after


def taken_line(settings: dict[str, Any]) -> str:
    """How positions were chosen."""
    skipped = settings.get("skip_first")
    return joined(
        f"positions {settings.get('positions')}",
        f"first {skipped} tokens never taken" if skipped else "",
        f"seed {settings.get('seed')}",
    )


def _columns(submodules: bool) -> tuple[Column, ...]:
    return (
        Column("map" if submodules else "layers", "text", "key"),
        Column("r²", "number"),
        Column("r² of id", "number", "faint"),
        Column("median", "number", "faint", drop=2),
        Column("pooled", "number", "faint", drop=3),
        Column("rank", "number", drop=1),
        Column("condition", "text", "faint", drop=1),
    )


def _row(pair: PairFit, submodules: bool) -> tuple[Any, ...]:
    name = pair.source.removesuffix(".in") if submodules else f"{pair.source} → {pair.target}"
    condition = "" if pair.condition is None else f"{pair.condition:.1e}"
    return name, pair.r2, pair.r2_id, pair.r2_median, pair.r2_pooled, pair.rank, condition


def _heat(result: Maps) -> tuple[HeatMap, ...]:
    n = result.n_layers
    return tuple(
        HeatMap(f"r² of {name}", triangle(result.pairs, n, field), "from", "to")
        for name, field in ((result.kind, "r2"), ("id (below 0 shown as 0)", "r2_id"))
    )


def triangle(
    pairs: tuple[PairFit, ...], n_layers: int, name: str
) -> tuple[tuple[float | None, ...], ...]:
    """r² by source and target; what is below 0 is drawn as 0, for it has no lower end."""
    values = {(int(p.source), int(p.target)): getattr(p, name) for p in pairs}
    return tuple(
        tuple(_floored(values.get((a, b))) for b in range(n_layers + 1)) for a in range(n_layers)
    )


def _floored(value: float | None) -> float | None:
    return None if value is None else max(0.0, value)


def _notes(result: Maps) -> tuple[str, ...]:
    about = result.about
    cut = [p for p in result.pairs if p.cut is not None]
    found = [f"{note}" for note in about.get("notes", ())]
    if cut:
        found.append(
            f"The rows do not determine {len(cut)} of {len(result.pairs)} maps: directions below "
            f"the cut ({cut[0].cut:.0e} of the largest) count as absent."
        )
    worse = [p for p in result.pairs if p.r2 is not None and p.r2 < (p.r2_id or 0.0)]
    if worse and not any("." in p.source for p in worse):
        found.append(
            f"{len(worse)} of {len(result.pairs)} maps are worse than the identity on held-out "
            "rows: fit more rows, or --kind ridge."
        )
    constant = max((p.n_constant for p in result.pairs), default=0)
    if constant:
        found.append(f"Up to {constant} constant coordinates are left out of r².")
    outlying = about.get("rows_outlying")
    if outlying:
        found.append(
            f"{outlying} rows have a norm over 10 times their layer's median: r² is a mean over "
            "coordinates, which they do not carry alone (pooled r² may be)."
        )
    ridge = about.get("ridge")
    if ridge:
        found.append(f"Ridge strengths: {', '.join(f'{k}: {v:g}' for k, v in ridge.items())}.")
    return tuple(found)


@sheet.register
def _(result: KeptMaps) -> Sheet:
    columns = (
        Column("file", "text", "faint", drop=1),
        Column("model", "text", "key"),
        Column("kind", "text"),
        Column("pairs", "number"),
        Column("rows", "number"),
        Column("text", "text"),
        Column("size", "text"),
    )
    rows = tuple(
        (
            f["file"][:10],
            model_name(f),
            f["kind"],
            f["pairs"],
            f["rows"],
            shown(f["text"]),
            size(f["bytes"]),
        )
        for f in result.files
    )
    return Sheet("Fitted maps in the cache", "", (View(columns, rows),))
