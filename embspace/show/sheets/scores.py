"""How held-out scores look: mat and id side by side, layer by layer, each with its interval."""

from typing import Any

from ...intervals import FEWEST
from ...maps.score import KS, LayerScore, Scores
from ...maps.transfer import MEASURES, Transfer
from ...shorten.submodules import SubmoduleScores, parts_of
from ..view import Column, HeatMap, Sheet, View, joined, model_name, origin, shown
from ..views import sheet
from .maps import taken_line

NAMES = {"precision@1": "P@1", "precision@5": "P@5", "precision@10": "P@10"} | {
    "surprisal": "surprisal",
    "kl": "KL",
}
DROPS = {"precision@5": 2, "kl": 3, "precision@10": 5}
MEASURED = (
    "P@k: the map's first token is among the model's own k first. Surprisal: −log p_model of it, "
    "nats. KL(model ‖ map), nats. "
)
MEANING = (
    f"{MEASURED}±: half a 95 % interval over texts, left out where fewer than {FEWEST} texts tell "
    "none. Both ends, and what has no room here, are in --csv and --json."
)
BARE = f"{MEASURED}95 % intervals over texts are in --csv and --json."
PARTS = {
    "attn": "attention",
    "ff": "feed-forward",
    "attn_norm": "norm 1",
    "ff_norm": "norm 2",
    "norms": "both norms",
}


def part_title(name: str) -> str:
    """`attn,norms` in words."""
    return " + ".join(PARTS[part] for part in name.split(","))


@sheet.register
def _(result: Scores) -> Sheet:
    settings = result.settings
    title = joined(model_name(result.provenance), f"{settings.get('rows')} held-out positions")
    about = joined(
        f"text {shown(str(settings.get('text')))}",
        f"maps of {settings.get('rows_fitted')} rows",
        taken_line(settings),
    )
    kinds = list(result.r2)
    views = (_by_layer(result, kinds),) if result.layers else (_pairs(result, kinds),)
    notes = (
        *((MEANING,) if result.layers else ()),
        *result.notes,
        *origin(result.provenance, result.settings),
    )
    return Sheet(title, about, views, notes, _heat_maps(result))


def _by_layer(result: Scores, kinds: list[str]) -> View:
    last = max(int(pair.split("-")[1]) for pair in result.r2[kinds[0]])
    columns = [Column("layer", "number")]
    for name, drop in (("r²", 4), *((NAMES[m], DROPS.get(m, 0)) for m in NAMES)):
        for n, kind in enumerate(kinds):
            header = kind if n else f"{name} {kind}"
            columns.append(Column(header, "number", "faint" if n else "value", drop, digits=3))
            if name != "r²":
                columns.append(Column("±", "number", "faint", drop=1, digits=2))
    rows = tuple(_row(result, kinds, n, last) for n in range(len(result.layers[kinds[0]])))
    return View(tuple(columns), rows)


def _row(result: Scores, kinds: list[str], n: int, last: int) -> tuple[Any, ...]:
    scores = [result.layers[kind][n] for kind in kinds]
    layer = scores[0].layer
    row: list[Any] = [layer, *(result.r2[kind].get(f"{layer}-{last}") for kind in kinds)]
    for measure in NAMES:
        for score in scores:
            ends = score.intervals[measure]
            row += [score.means[measure], ends and (ends[1] - ends[0]) / 2]
    return tuple(row)


def _pairs(result: Scores, kinds: list[str]) -> View:
    columns = (Column("layers", "text", "key"), *(Column(f"{k} r²", "number") for k in kinds))
    rows = tuple(
        (pair.replace("-", " → "), *(result.r2[kind].get(pair) for kind in kinds))
        for pair in result.r2[kinds[0]]
    )
    return View(columns, rows)


def _heat_maps(result: Scores) -> tuple[tuple[HeatMap, ...], ...]:
    """r² of every pair, where more than those to the last state were scored."""
    pairs = [tuple(map(int, pair.split("-"))) for pair in next(iter(result.r2.values()))]
    if len({b for _, b in pairs}) < 2:
        return ()
    n = max(b for _, b in pairs)
    family = []
    for kind, found in result.r2.items():
        values = tuple(
            tuple(_floored(found.get(f"{a}-{b}")) for b in range(n + 1)) for a in range(n)
        )
        floor = " (below 0 as 0)" if any((v or 0) < 0 for v in found.values()) else ""
        family.append(HeatMap(f"r² of {kind}{floor}", values, "from", "to"))
    return (tuple(family),)


def _floored(value: float | None) -> float | None:
    return None if value is None else max(0.0, value)


@sheet.register
def _(result: Transfer) -> Sheet:
    names = {text: shown(text) for text in result.texts}
    title = joined(model_name(result.provenance), "maps of one text on another")
    columns = (
        Column("scored on", "text", "key"),
        Column("fitted on", "text"),
        *(Column(NAMES[m], "number", digits=3) for m in MEASURES),
    )
    rows, breaks = [], []
    for on in result.texts:
        other = next(text for text in result.texts if text != on)
        breaks.append(len(rows))
        for fitted, name in ((on, names[on]), (other, names[other]), ("id", "(identity)")):
            rows.append((names[on], name, *(result.mean(fitted, on, m) for m in MEASURES)))
        rows.append((names[on], "change", *(result.change[on][m] for m in MEASURES)))
    view = View(columns, tuple(rows), breaks=frozenset(breaks[1:]))
    about = joined(
        f"mean over layers, {result.settings.get('rows_fitted')} lines fitted of each text",
        "change: fitted elsewhere minus fitted here",
    )
    return Sheet(
        title, about, (view,), (BARE, *result.notes, *origin(result.provenance, result.settings))
    )


@sheet.register
def _(result: SubmoduleScores) -> Sheet:
    title = joined(model_name(result.provenance), "linear from block l on")
    about = joined(
        f"text {shown(str(result.settings.get('text')))}",
        f"{result.settings.get('rows')} held-out positions",
        f"maps of {result.settings.get('rows_fitted')} rows",
    )
    views = tuple(
        _part(part_title(name), name, each, result) for name, each in result.parts.items()
    )
    blocks = _part("all of it, as one map from state l", "blocks", result.blocks, result)
    notes = (BARE, *result.notes, *origin(result.provenance, result.settings))
    return Sheet(title, about, (*views, blocks), notes)


def _part(title: str, name: str, scores: tuple[LayerScore, ...], result: SubmoduleScores) -> View:
    parts = [] if name == "blocks" else [p for p in parts_of(name) if p in result.r2]
    heads = ["r² in l"] if len(parts) == 1 else [f"r² {PARTS[part]}" for part in parts]
    columns = [Column("from l", "number")]
    columns += [Column(head, "number", "faint", drop=2, digits=3) for head in heads]
    kept = [f"precision@{k}" for k in (KS[0], KS[-1])] + ["surprisal", "kl"]
    columns += [Column(NAMES[m], "number", digits=3) for m in kept]
    rows = tuple(
        (
            one.layer,
            *(result.r2[part].get(one.layer) for part in parts),
            *(one.means.get(m) for m in kept),
        )
        for one in scores
    )
    return View(tuple(columns), rows, title)
