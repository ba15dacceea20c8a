"""Results as HTML fragments for notebooks: every cell escaped, nothing fetched from elsewhere."""

from html import escape
from typing import Any

from .heat_maps import SHADES, shade_of
from .report import Column, HeatMap, Table, TokenGrid, report

CSS = """
.embspace { font-size: 13px; margin: 0 0 1em; color: inherit; }
.embspace .title { font-weight: 600; }
.embspace .about, .embspace .note, .embspace .faint, .embspace th { opacity: .65; }
.embspace table { border-collapse: collapse; margin: .5em 0; background: transparent; }
.embspace th, .embspace td { padding: .1em 1em .1em 0; border: 0; text-align: left !important;
  background: transparent; vertical-align: top; }
.embspace .number { text-align: right !important; font-variant-numeric: tabular-nums; }
.embspace .token { font-family: ui-monospace, monospace; white-space: pre-wrap; }
.embspace caption { text-align: left; caption-side: top; color: inherit; padding: 0; }
.embspace tr.gap td { padding-top: 1em; }
.embspace .asks, .embspace .good { color: #2e8b57; }
.embspace .attended, .embspace .key { color: #0e8a9e; }
.embspace .promoted, .embspace .value { color: #b0499f; }
.embspace .bad { color: #cf3b3b; }
.embspace .map { display: inline-table; margin-right: 2em; }
.embspace .map td { padding: .1em .4em; text-align: center !important; }
.embspace .tokens caption { font-style: italic; }
.embspace .tokens td { padding: .1em .4em; font-family: ui-monospace, monospace;
  white-space: pre; max-width: 9em; overflow: hidden; text-overflow: ellipsis; }
.embspace .tokens th { padding: .1em .4em; white-space: pre; }
.embspace .tokens th.masked { opacity: 1; outline: 1px solid currentColor; }
.embspace .tokens .settled { font-weight: 700; }
.embspace .scroll { overflow-x: auto; }
.embspace .map .marked { outline: 2px solid currentColor; outline-offset: -3px; font-weight: 700; }
"""


# Notebooks typeset `$…$` in what they show; elements of these classes are left alone.
NO_MATHS = "tex2jax_ignore mathjax_ignore"


def as_html(result: Any) -> str:
    """A result as one HTML fragment with its own style, readable on light and dark pages."""
    return f'<div class="embspace {NO_MATHS}"><style>{CSS}</style>{fragment(result)}</div>'


def fragment(result: Any) -> str:
    """The same without the style, for a page that brings it once."""
    page = report(result)
    about = f'<div class="about">{escape(page.about)}</div>' if page.about else ""
    tables = "".join(_table(table) for table in page.tables)
    notes = "".join(f'<div class="note">{escape(note)}</div>' for note in page.notes)
    maps = "".join(
        f'<div class="scroll">{"".join(map(_map, family))}</div>' for family in page.maps
    )
    maps += "".join(grid_table(grid) for grid in page.grids)
    title = f'<div class="title">{escape(page.title)}</div>'
    title += f'<div class="lead">{escape(page.lead)}</div>' if page.lead else ""
    return f"{title}{about}{tables}{maps}{notes}"


def _table(table: Table) -> str:
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = "".join(f'<th class="{c.kind}">{escape(c.header)}</th>' for c in table.columns)
    body = "".join(_row(table, n, row) for n, row in enumerate(table.cells))
    return (
        f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _map(heat: HeatMap) -> str:
    """A heat map as a table: each number over its shade, marked ones framed."""
    caption = f"<caption>{escape(heat.title)}<br>{escape(heat.scale())}</caption>"
    head = "".join(f"<th>{n}</th>" for n in range(len(heat.values[0])))
    corner = f"<th>{escape(heat.rows)} ↓ {escape(heat.columns)} →</th>"
    body = "".join(
        f"<tr><th>{n}</th>{''.join(_shade(heat, n, at) for at in range(len(row)))}</tr>"
        for n, row in enumerate(heat.values)
    )
    return f'<table class="map">{caption}<tr>{corner}{head}</tr>{body}</table>'


def grid_table(grid: TokenGrid, name: str = "") -> str:
    """A grid of tokens as a table; what hovers over a cell is its title, or found by `name`."""
    head = "".join(_grid_head(grid, n) for n in range(len(grid.heads)))
    numbers = "".join(f"<th>{n}</th>" for n in grid.numbers)
    body = "".join(_grid_row(grid, r, name) for r in range(len(grid.rows)))
    foot = "".join(f"<td>{escape(text)}</td>" for text in grid.foot)
    return (
        f'<div class="scroll"><table class="tokens"><caption>{escape(grid.title)}</caption>'
        f"<thead><tr><th></th>{numbers}</tr><tr><th>layer</th>{head}</tr></thead><tbody>{body}"
        f"</tbody><tfoot><tr><th>{escape(grid.foot_name)}</th>{foot}</tr></tfoot></table></div>"
    )


def _grid_head(grid: TokenGrid, at: int) -> str:
    mark = ' class="masked"' if at in grid.marked else ""
    return f"<th{mark}><bdi>{escape(grid.heads[at])}</bdi></th>"


def _grid_row(grid: TokenGrid, r: int, name: str) -> str:
    cells = []
    for at, (token, p, settled) in enumerate(grid.cells[r]):
        paper, ink = shade_of(p)
        mark = ' class="settled"' if settled else ""
        more = (
            f' data-grid="{escape(name)}" data-row="{r}" data-at="{at}" tabindex="0"'
            if name
            else f' title="{escape(grid.hover[r][at])}"'
        )
        style = f"background:{paper};color:{ink}"
        cells.append(f'<td{mark}{more} style="{style}"><bdi>{escape(token)}</bdi></td>')
    return f"<tr><th>{escape(grid.rows[r])}</th>{''.join(cells)}</tr>"


def _shade(heat: HeatMap, row: int, column: int) -> str:
    value = heat.values[row][column]
    if value is None:
        return "<td></td>"
    paper, ink = SHADES[heat.level(heat.shade(row, column) or 0.0)]
    mark = ' class="marked"' if (row, column) in heat.marked else ""
    return f'<td{mark} style="background:{paper};color:{ink}">{value:.3g}</td>'


def _row(table: Table, n: int, row: tuple[str, ...]) -> str:
    gap = ' class="gap"' if n in table.breaks else ""
    cells = "".join(_cell(c, text) for c, text in zip(table.columns, row, strict=True))
    return f"<tr{gap}>{cells}</tr>"


def _cell(column: Column, text: str) -> str:
    """A token is isolated (`bdi`), so that right-to-left text moves nothing around it."""
    inner = f"<bdi>{escape(text)}</bdi>" if column.kind == "token" else escape(text)
    return f'<td class="{column.kind} {column.tone}">{inner}</td>'
