"""A prompt through the lens as one HTML page: hover, tap or focus a cell for its top tokens.

Nothing is fetched: style, script and data are in the page, and its policy forbids requests. Tokens
are text of unknown origin: they reach the page through `escape`, or through JSON in which no `<`,
`>` or `&` is left, and the script only ever sets text.
"""

import json
from html import escape
from typing import Any

from ..mapping.lens.grid import Lens
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
@media (max-width: 600px) { body { margin: .4em; } #tip { left: 0 !important; right: 0;
  bottom: 0; top: auto !important; max-width: none; } }
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
  const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
  const below = box.bottom + tip.offsetHeight + 8 < innerHeight;
  tip.style.left = Math.max(0, left) + "px";
  tip.style.top = (below ? box.bottom + 4 : Math.max(0, box.top - tip.offsetHeight - 4)) + "px";
}
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
    notes = "".join(f'<div class="note">{escape(note)}</div>' for note in page.notes)
    text = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{CSS}{PAGE_CSS}</style></head>"
        f'<body><h1>{escape(page.title)}</h1><div class="embspace">'
        f'<div class="about">{escape(page.about)}; bold: the final answer, for good. Hover, tap '
        f"or focus a cell for its most likely tokens.</div>{tables}{notes}</div>"
        f'<div id="tip" role="tooltip"></div><script type="application/json" id="data">'
        f"{json_block(data)}</script><script>{SCRIPT}</script></body></html>\n"
    )
    return text.encode("utf8", errors="backslashreplace").decode("utf8")


def json_block(data: Any) -> str:
    """JSON that may stand in a script element: no character that HTML could take for its end."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
