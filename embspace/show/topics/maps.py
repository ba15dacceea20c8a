"""How fitted maps look: a line a map to the last state, r² of all pairs as a heat map."""

from typing import Any

from ...maps.inventory import KeptMaps
from ...maps.maps import Maps, PairFit
from ..report import HeatMap, Report, Table, number, report, text
from ..wording import joined, model_name, origin, shown, size, taken_line, written


@report.register
def _(result: Maps) -> Report:
    about = result.about
    title = joined(model_name(about), f"{result.kind} maps", f"{about.get('rows')} rows fitted")
    if result.kind == "refined":
        return _refined(result, title)
    rows_scored = about.get("rows_scored")
    held = f"r² on {rows_scored} held-out rows" if rows_scored else "no rows held out"
    submodules = any("." in pair.source for pair in result.pairs)
    last = str(result.n_layers)
    listed = [p for p in result.pairs if submodules or p.target == last] or list(result.pairs)
    return Report(
        title,
        joined(f"text {shown(about.get('text'))}", held, taken_line(about)),
        (_fits(listed, submodules),),
        (*_notes(result), *origin(about, about)),
        () if submodules or len(listed) == len(result.pairs) else (_heat_maps(result),),
    )


def _fits(pairs: list[PairFit], submodules: bool) -> Table:
    columns = (
        text("map" if submodules else "layers", lambda p: _name(p, submodules), "key"),
        number("r²", lambda p: p.r2),
        number("r² of id", lambda p: p.r2_id, "faint"),
        number("median", lambda p: p.r2_median, "faint", drop=2),
        number("pooled", lambda p: p.r2_pooled, "faint", drop=3),
        number("rank", lambda p: p.rank, drop=1),
        text("condition", lambda p: written(p.condition, ".1e"), "faint", drop=1),
    )
    return Table.of(pairs, columns)


def _name(pair: PairFit, submodule: bool = False) -> str:
    return pair.source.removesuffix(".in") if submodule else f"{pair.source} → {pair.target}"


def _refined(result: Maps, title: str) -> Report:
    """What refining lowers: KL, of each layer's start and of what was kept."""
    about, how = result.about, result.about.get("refined")
    apart = how.get("rows_apart") if isinstance(how, dict) else None
    start = str(about.get("refined_from"))
    columns = (
        text("layers", _name, "key"),
        number(f"KL of {start}", lambda p: _kl(about, p.source)[0], "faint"),
        number("KL refined", lambda p: _kl(about, p.source)[1]),
    )
    said = joined(
        f"text {shown(about.get('text'))}",
        f"KL(model ‖ map), nats, on the {apart} rows that chose the epoch",
        taken_line(about),
    )
    not_held = (
        f"{start} was fitted on these rows too: for KL and r² on held-out text see `embspace score "
        "--maps FILE`."
    )
    notes = (not_held, *_notes(result), *origin(about, about))
    return Report(title, said, (Table.of(result.pairs, columns),), notes)


def _kl(about: dict[str, Any], source: str) -> tuple[float | None, float | None]:
    """KL before and after, of a record that a file may hold in any shape."""
    kl = about.get("kl")
    found = kl.get(source) if isinstance(kl, dict) else None
    if not isinstance(found, list | tuple) or len(found) != 2:
        return None, None
    before, after = (x if isinstance(x, int | float) else None for x in found)
    return before, after


def _heat_maps(result: Maps) -> tuple[HeatMap, ...]:
    kinds = ((result.kind, "r2"), ("id (below 0 shown as 0)", "r2_id"))
    return tuple(
        r2_map(
            f"r² of {name}",
            {(int(p.source), int(p.target)): getattr(p, field) for p in result.pairs},
            result.n_layers,
        )
        for name, field in kinds
    )


def r2_map(title: str, found: dict[tuple[int, int], float | None], n: int) -> HeatMap:
    """r² by source and target; what is below 0 is drawn as 0, for it has no lower end."""
    values = tuple(
        tuple(None if (r2 := found.get((a, b))) is None else max(0.0, r2) for b in range(n + 1))
        for a in range(n)
    )
    return HeatMap(title, values, "from", "to")


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


@report.register
def _(result: KeptMaps) -> Report:
    columns = (
        text("file", lambda f: f["file"][:10], "faint", drop=1),
        text("model", model_name, "key"),
        text("kind", lambda f: f["kind"]),
        number("pairs", lambda f: f["pairs"]),
        number("rows", lambda f: f["rows"]),
        text("text", lambda f: shown(f["text"])),
        text("size", lambda f: size(f["bytes"])),
    )
    return Report("Fitted maps in the cache", "", (Table.of(result.files, columns),))
