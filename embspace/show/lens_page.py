"""A prompt through the lens as one HTML page: hover, tap or focus a cell for its top tokens.

Nothing is fetched: style, script and data are in the page, and its policy forbids requests. Tokens
are text of unknown origin: they reach the page through `escape`, or through JSON in which no `<`,
`>` or `&` is left, and the script only ever sets text.
"""

import json
from html import escape
from typing import Any

from ..maps.lens_grid import Lens
from .heat import SHADES
from .html import CSS, grid_table
from .sheets.lens import token_grids
from .view import Sheet
from .views import sheet

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
  pointer-events: none; overflow: hidden; }
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
  const low = box.bottom + 2 * box.height > innerHeight - tip.offsetHeight;
  tip.style.top = low ? "0" : "auto";
  tip.style.bottom = low ? "auto" : "0";
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


def lens_page(result: Lens) -> str:
    """The whole page as text, in UTF-8 when written."""
    page: Sheet = sheet(result)
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
