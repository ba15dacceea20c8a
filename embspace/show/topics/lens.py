"""How a prompt looks through the lens: a grid of tokens, or one position layer by layer.

On its page, a cell's top tokens are shown on hover, tap or focus. Nothing is fetched: style, script
and data are in the page, and its policy forbids requests. Tokens are text of unknown origin: they
reach the page through `escape`, or through JSON in which no `<`, `>` or `&` is left, and the script
only ever sets text.
"""

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...maps.lens_grid import Grid, Lens
from ..figures import MAP, drawn
from ..heat_maps import SHADES
from ..html import CSS, grid_table
from ..report import Column, Report, Table, TokenGrid, of_model, plot, report, text, token
from ..wording import clipped, joined, model_name, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"id": "id (logit lens)"}
CELL, ROW = 0.75, 0.22  # inches of the figure
LONGEST = 10  # characters of a token in a cell of the figure
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
PAGE_CSS = """
:root { color-scheme: light dark; }
body { font: 14px/1.4 system-ui, sans-serif; margin: 1em; background: Canvas; color: CanvasText; }
h1 { font-size: 1.2em; }
.embspace .tokens td { cursor: default; }
.embspace .tokens td:focus, .embspace .tokens td:hover { outline: 2px solid currentColor;
  outline-offset: -2px; }
.embspace .tokens th:first-child { position: sticky; left: 0; background: Canvas; opacity: 1; }
#tip { position: fixed; display: none; z-index: 2; max-width: 22em; padding: .5em .8em;
  background: Canvas; color: CanvasText; border: 1px solid GrayText; border-radius: 4px;
  font: 12px/1.4 ui-monospace, monospace; white-space: pre;
  pointer-events: none; overflow: hidden; box-sizing: border-box; }
#tip { left: 0; right: 0; max-width: none; border-radius: 0; }
.side { display: flex; flex-wrap: wrap; gap: 0 2em; align-items: flex-start; }
.side .scroll { max-width: 100%; }
.legend span { padding: 0 .5em; font: 12px/1.6 ui-monospace, monospace; }
@media (max-width: 600px) { body { margin: .4em; } }
@media print { #tip { display: none !important; } .embspace .scroll { overflow: visible; }
  .embspace .tokens td { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""
SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
function show(cell) {
  const box = cell.getBoundingClientRect();
  tip.textContent = data[cell.dataset.grid][cell.dataset.row][cell.dataset.at];
  tip.style.display = "block";
  const above = box.top, below = innerHeight - box.bottom;
  const low = below < tip.scrollHeight && above > below;
  tip.style.top = low ? "0" : "auto";
  tip.style.bottom = low ? "auto" : "0";
  tip.style.maxHeight = Math.max(above, below) + "px";  // a low window: cut, not over the cell
}
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
document.addEventListener("keydown", (event) => {
  const cell = document.activeElement, step = STEPS[event.key];
  if (!step || !cell || !cell.dataset.grid) return;
  const [row, at] = [+cell.dataset.row + step[0], +cell.dataset.at + step[1]];
  const next = cell.closest("table").querySelector(`[data-row="${row}"][data-at="${at}"]`);
  if (next) { next.focus(); event.preventDefault(); }
});
for (const cell of document.querySelectorAll("td[data-grid]")) {
  cell.addEventListener("pointerenter", () => show(cell));
  cell.addEventListener("focus", () => show(cell));
  for (const end of ["pointerleave", "blur"])
    cell.addEventListener(end, () => { tip.style.display = "none"; });
}
"""


@report.register
def _(result: Lens) -> Report:
    title, notes = _what(result), (*_settled_lines(result), *_tracked_lines(result))
    if len(result.places) == 1:
        return of_model(result, title, [_at(result)], _tables(result), notes)
    about = "the most likely token of each layer, shaded by its probability; " + (
        "columns: input tokens" if result.settings.get("causal") else "columns: positions"
    )
    return of_model(result, title, [about], (), notes, grids=token_grids(result))


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


def _tables(result: Lens) -> tuple[Table, ...]:
    """One position: a line a layer, with as many of its first tokens as there is room for."""
    return tuple(
        Table.of(range(len(grid.rows)), _columns(result, kind, grid), NAMES.get(kind, kind))
        for kind, grid in result.grids.items()
    )


def _columns(result: Lens, kind: str, grid: Grid) -> list[Column]:
    k = grid.ids.shape[2]
    top = [result.top(kind, r, 0)[:k] for r in range(len(grid.rows))]
    columns = [text("layer", lambda r: grid.rows[r], "faint")]
    for n in range(k):
        drop = k - n if n else 0
        columns += [
            token(f"{n + 1}", lambda r, n=n: top[r][n][0], "value", drop),
            text("p", lambda r, n=n: f"{top[r][n][1]:.3f}", "faint", drop),
        ]
    columns.append(text("entropy", lambda r: f"{float(grid.entropy[r, 0]):.2f}"))
    if _answer_untracked(result):
        columns.append(text("answer", lambda r: f"{int(grid.rank[r, 0]) + 1}"))
    for n, (_, label) in enumerate(result.tracked):
        columns.append(token(label, lambda r, n=n: _tracked(grid, r, n)))
    return columns


def _tracked(grid: Grid, r: int, n: int) -> str:
    return f"{int(grid.tracked_rank[r, 0, n]) + 1}, p {float(grid.tracked_p[r, 0, n]):.2g}"


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


@plot.register
def _(result: Lens, path: str | Path) -> None:
    """The grids below each other, each cell with its token."""
    grids = token_grids(result)
    wide, high = len(result.places), len(grids[0].rows)
    with drawn(path, max(4.0, CELL * wide + 1.2), len(grids) * (ROW * high + 0.9) + 0.3) as figure:
        panels = figure.subplots(len(grids), 1, squeeze=False)[:, 0]
        images = [_panel(axes, grid) for axes, grid in zip(panels, grids, strict=True)]
        figure.colorbar(images[-1], ax=panels.tolist(), label="probability", fraction=0.03)
        named = joined(model_name(result.provenance), shown(result.settings.get("prompt", "")))
        figure.suptitle(clipped(named, max(40, 12 * wide)), fontsize=9)


def _panel(axes: "Axes", grid: TokenGrid) -> Any:
    p = [[cell[1] for cell in row] for row in grid.cells]
    image = axes.imshow(p, cmap=MAP, vmin=0, vmax=1, aspect="auto")
    for r, row in enumerate(grid.cells):
        for at, (label, share, settled) in enumerate(row):
            ink = "black" if share > 0.6 else "white"
            weight = "bold" if settled else "normal"
            look = {"ha": "center", "va": "center", "fontsize": 6, "weight": weight, "color": ink}
            axes.text(at, r, clipped(label, LONGEST), **look)
    axes.set_xticks(range(len(grid.heads)), [clipped(h, LONGEST) for h in grid.heads], fontsize=6)
    axes.set_yticks(range(len(grid.rows)), grid.rows, fontsize=6)
    axes.xaxis.tick_top()
    axes.set_ylabel("layer")
    axes.set_title(grid.title, fontsize=8)
    return image


def lens_page(result: Lens) -> str:
    """The whole page as text, in UTF-8 when written."""
    page = report(result)
    grids = token_grids(result)
    names = list(result.grids)
    tables = "".join(grid_table(grid, name) for grid, name in zip(grids, names, strict=True))
    data = {name: grid.hover for name, grid in zip(names, grids, strict=True)}
    prompt = str(result.settings.get("prompt") or "")
    title = f"{prompt} · {page.title}" if prompt else page.title
    notes = "".join(f'<div class="note">{escape(note)}</div>' for note in page.notes)
    text = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}{PAGE_CSS}</style></head>"
        f'<body><h1>{escape(title)}</h1><div class="embspace">'
        f'<div class="about">{escape(page.about)}; bold: the final answer, for good. Hover, tap '
        f"or focus a cell for its most likely tokens; arrow keys move on.</div>"
        f'{_legend()}<div class="side">{tables}</div>{notes}</div>'
        f'<div id="tip" role="tooltip"></div><script type="application/json" id="data">'
        f"{json_block(data)}</script><script>{SCRIPT}</script></body></html>\n"
    )
    return text.encode("utf8", errors="backslashreplace").decode("utf8")


def _legend() -> str:
    """The shades of probabilities, each with where it begins."""
    shades = "".join(
        f'<span style="background:{paper};color:{ink}">{n / 10:.1f}</span>'
        for n, (paper, ink) in enumerate(SHADES)
    )
    return f'<div class="legend">probability from {shades}</div>'


def json_block(data: Any) -> str:
    """JSON that may stand in a script element: no character that HTML could take for its end."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
