"""How a prompt looks through the lens: a grid of tokens, or one position layer by layer."""

from collections.abc import Sequence
from typing import Any

from ...maps.lens_comparison import METRICS, LensComparison, LensCost
from ...maps.lens_grid import Grid, Lens
from ..view import Column, Sheet, TokenGrid, View, joined, model_name, origin, shown
from ..views import sheet

NAMES = {"id": "id (logit lens)"}


@sheet.register
def _(result: Lens) -> Sheet:
    title = joined(model_name(result.provenance), _what(result))
    notes = (*_settled_lines(result), *_tracked_lines(result), *result.notes)
    notes = (*notes, *origin(result.provenance, result.settings))
    if len(result.places) == 1:
        views = tuple(_table(result, kind) for kind in result.grids)
        return Sheet(title, _at(result), views, notes)
    about = "the most likely token of each layer, shaded by its probability; " + (
        "columns: input tokens" if result.settings.get("causal") else "columns: positions"
    )
    return Sheet(title, about, (), notes, grids=token_grids(result))


def token_grids(result: Lens) -> tuple[TokenGrid, ...]:
    """The grids of a result, one a lens."""
    return tuple(_token_grid(result, kind) for kind in result.grids)


def _what(result: Lens) -> str:
    n = result.settings.get("generated")
    return f"{len(result.places)} tokens generated" if n else "what each layer would say"


def _at(result: Lens) -> str:
    place = result.places[0]
    where = "in place of" if place.masked else "after" if result.settings.get("causal") else "at"
    ranked = ["the final answer"] * _answer_untracked(result)
    ranked += [label for _, label in result.tracked]
    said = f"rank of {', '.join(ranked)}, 1 is the first"
    return joined(f"position {place.index}, {where} {place.label}", said)


def _token_grid(result: Lens, kind: str) -> TokenGrid:
    grid = result.grids[kind]
    ids, p = grid.ids[:, :, 0].tolist(), grid.p[:, :, 0].tolist()
    settled = grid.settled()
    first = [grid.rows.index(s) if s else len(grid.rows) for s in settled]
    cells = tuple(
        tuple(
            (result.labels[i], share, r >= first[at])
            for at, (i, share) in enumerate(zip(ids[r], p[r], strict=True))
        )
        for r in range(len(grid.rows))
    )
    hover = tuple(
        tuple(_hover(result, kind, r, at) for at in range(len(result.places)))
        for r in range(len(grid.rows))
    )
    return TokenGrid(
        NAMES.get(kind, kind),
        grid.rows,
        tuple(place.label for place in result.places),
        tuple(place.index for place in result.places),
        frozenset(n for n, place in enumerate(result.places) if place.masked),
        cells,
        tuple(s or "never" for s in settled),
        "settled",
        hover,
    )


def _hover(result: Lens, kind: str, r: int, at: int) -> str:
    grid = result.grids[kind]
    lines = [f"layer {grid.rows[r]}, position {result.places[at].index}"]
    lines += [f"{share:.3f} {token}" for token, share in result.top(kind, r, at)]
    lines.append(f"entropy {float(grid.entropy[r, at]):.2f} nats")
    lines.append(f"final answer at rank {int(grid.rank[r, at]) + 1}")
    return "\n".join(lines)


def _table(result: Lens, kind: str) -> View:
    """One position: the first tokens of each layer, as many as there is room for."""
    grid = result.grids[kind]
    k = grid.ids.shape[2]
    columns = [Column("layer", "text", "faint")]
    for n in range(k):
        drop = k - n if n else 0
        columns += [Column(f"{n + 1}", "token", "value", drop), Column("p", "text", "faint", drop)]
    columns += [Column("entropy", "text")]
    columns += [Column("answer", "text")] * _answer_untracked(result)
    columns += [Column(label, "token") for _, label in result.tracked]
    rows = tuple(_row(result, kind, grid, r, k) for r in range(len(grid.rows)))
    return View(tuple(columns), rows, NAMES.get(kind, kind))


def _row(result: Lens, kind: str, grid: Grid, r: int, k: int) -> tuple[Any, ...]:
    tokens = [x for token, p in result.top(kind, r, 0)[:k] for x in (token, f"{p:.3f}")]
    tracked = [
        f"{rank + 1}, p {p:.2g}"
        for rank, p in zip(
            grid.tracked_rank[r, 0].tolist(), grid.tracked_p[r, 0].tolist(), strict=True
        )
    ]
    entropy, rank = f"{float(grid.entropy[r, 0]):.2f}", f"{int(grid.rank[r, 0]) + 1}"
    answer = [rank] * _answer_untracked(result)
    return (grid.rows[r], *tokens, entropy, *answer, *tracked)


def _answer_untracked(result: Lens) -> bool:
    """Whether the one position's answer has no column of its own as a tracked token."""
    return result.places[0].answer not in {token for token, _ in result.tracked}


def _settled_lines(result: Lens) -> tuple[str, ...]:
    """`mat: settled at layer 12 of 30`, of one position or of the middle one of several."""
    found = []
    grid = next(iter(result.grids.values()))
    for kind, grid in result.grids.items():
        settled = grid.settled()
        if len(settled) == 1:
            where = f"settled at layer {settled[0]}" if settled[0] else "not settled"
            answer = shown(result.places[0].answer_label)
            found.append(f"{kind}: {where} of {result.n_layers} on {answer}")
            continue
        rows = [grid.rows.index(s) if s else len(grid.rows) for s in settled]
        middle = sorted(rows)[(len(rows) - 1) // 2]
        where = f"at layer {grid.rows[middle]}" if middle < len(grid.rows) else "nowhere"
        found.append(
            f"{kind}: half of the positions are settled {where} of {result.n_layers}; the last "
            f"one at {settled[-1] or 'none of these layers'}"
        )
    whole = sum(row.isdecimal() for row in grid.rows) == result.n_layers + 1
    return ("; ".join(found) + ("." if whole else " (of the layers shown)."),)


def _tracked_lines(result: Lens) -> tuple[str, ...]:
    """Ranks of tracked tokens at the last position shown, layer by layer."""
    if len(result.places) == 1:
        return ()
    found = []
    for n, (_, label) in enumerate(result.tracked):
        for kind, grid in result.grids.items():
            ranks = [f"{row}: {r + 1}" for row, r in _ranks(grid, n)]
            at = result.places[-1].index
            found.append(f"rank of {shown(label)} at position {at}, {kind}, {', '.join(ranks)}.")
    return tuple(found)


def _ranks(grid: Grid, n: int) -> list[tuple[str, int]]:
    return list(zip(grid.rows, grid.tracked_rank[:, -1, n].tolist(), strict=True))


@sheet.register
def _(result: LensComparison) -> Sheet:
    settings = result.settings
    title = joined(model_name(result.provenance), "lenses on the same held-out positions")
    about = joined(
        f"{settings.get('rows')} positions of {shown(str(settings.get('text')))} "
        f"(hash {settings.get('text_hash')})",
        "means over layers, 95 % intervals over texts",
        "KL, cross-entropy and Surprisal in nats",
    )
    views = (_means(result), *(_by_layer(result, m) for m in ("kl", "precision@1")))
    return Sheet(title, about, views, result.notes + origin(result.provenance, result.settings))


def _means(result: LensComparison) -> View:
    columns = [Column("lens", "text", "value")]
    for metric in METRICS:
        drop = {"precision@5": 2, "precision@10": 3}.get(metric, 0)
        columns += [Column(METRICS[metric], "text", drop=drop), Column("", "text", "faint", 1)]
    columns += [Column(name, "text", "faint", 4) for name in ("fit rows", "fit s", "MB")]
    rows = tuple(_mean_row(result, name, cost) for name, cost in result.costs.items())
    return View(tuple(columns), rows, title="mean over layers")


def _mean_row(result: LensComparison, name: str, cost: LensCost) -> tuple[Any, ...]:
    cells: list[Any] = [name]
    for metric in METRICS:
        mean = result.overall[name].means.get(metric)
        low, high = result.overall[name].intervals.get(metric) or (None, None)
        cells += ["" if mean is None else f"{mean:.3f}"]
        cells += ["" if low is None else f"{low:.3f} … {high:.3f}"]
    rows = "" if cost.rows is None else str(cost.rows)
    seconds = "" if cost.seconds is None else f"{cost.seconds:.0f}"
    return (*cells, rows, seconds, f"{cost.n_bytes / 1e6:.1f}")


def _by_layer(result: LensComparison, metric: str) -> View:
    names: Sequence[str] = list(result.layers)
    columns = (Column("layer", "number"), *(Column(name, "text", "value") for name in names))
    rows = tuple(
        (layer, *(f"{result.layers[name][n].means[metric]:.3f}" for name in names))
        for n, layer in enumerate(result.settings["layers"])
    )
    return View(columns, rows, title=f"{METRICS[metric]} by layer")
