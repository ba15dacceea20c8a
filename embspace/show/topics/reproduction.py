"""How a reproduction looks: the paper's claim, our figure, holds or not; and its page.

The page fetches nothing; it reads on a phone, in the dark, in print.
"""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from ...evidence.claims import FAILS, HOLDS, PAPERS, TIED, VOID, Verdict
from ...evidence.kept_steps import RESULT, TABLE, Kept
from ...evidence.reproduction import Done, Reproduction
from ...results import Result
from ...version import __version__
from ..figures import require_plot
from ..html import CSS, fragment
from ..report import Report, Table, has_figure, plot, report, text
from ..wording import joined, model_name, origin, shown

STEP_PAGE = "table.html"
FIGURES = ("figure.svg", "figure.png")
LONG = 12_000  # characters of a table's HTML from which it is folded away
TITLES = {
    "jump": "Jump to Conclusions (Yom Din et al. 2024)",
    "embedding": "Analyzing Transformers in Embedding Space (Dar et al. 2022)",
}
QUICK = (
    "--quick: few rows and vectors, so that figures are rough and close calls may fall either way."
)
RULE = (
    "A claim holds where its rule does, on the means measured here; a tie is undecided. Where "
    "their 95 % intervals overlap at a place that decides it, the row says so: it may fall the "
    "other way on other texts."
)
# The page may run and fetch nothing, whatever a token or a name holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
LOOK = """
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #59636e; --paper: #fff;
  --line: #d1d9e0; --card: #f6f8fa; --good: #1a7f37; --bad: #c1121f; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --faint: #9aa4b0; --paper: #12161c;
  --line: #343c46; --card: #1a2029; --good: #4cc16c; --bad: #ff7b72; --link: #74b0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.2rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .4rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
p { margin: .4rem 0; } a { color: var(--link); }
.soft { color: var(--faint); } .tally { font-weight: 600; }
.warn { border-left: 4px solid #b58900; padding-left: .7rem; }
nav a { margin-right: 1rem; display: inline-block; overflow-wrap: anywhere; }
.claims { border-collapse: collapse; width: 100%; font-size: .92rem; }
.claims th { text-align: left; color: var(--faint); font-weight: 500; }
.claims th, .claims td { padding: .5rem .9rem .5rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.claims .says { width: 36%; } .claims td[data-of="ours"] { width: 26%; }
.claims .verdict { white-space: nowrap; font-weight: 600; }
.holds .verdict { color: var(--good); } .fails .verdict { color: var(--bad); }
.void .verdict { color: var(--faint); font-weight: 400; }
.rule { font: .8rem ui-monospace, monospace; color: var(--faint); }
.figure { margin: .8rem 0; overflow-x: auto; background: #fff; border-radius: 6px; padding: .5rem;
  border: 1px solid var(--line); }
.figure svg { display: block; height: auto; margin: 0 auto; }
.figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
.scroll { overflow-x: auto; } summary { cursor: pointer; color: var(--link); }
.embspace .about, .embspace .note { max-width: 60rem; }
.embspace td.token { min-width: 8rem; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  .claims thead { display: none; }
  .claims tr { display: block; padding: .6rem 0; border-bottom: 1px solid var(--line); }
  .claims td { display: block; border: 0; padding: .1rem 0; }
  .claims .says, .claims td[data-of="ours"] { width: auto; }
  .claims td[data-of]:not(:empty)::before { content: attr(data-of) ": "; color: var(--faint); }
  .figure svg { min-width: 34rem; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --faint: #444; --paper: #fff; --line: #bbb;
    --good: #14632b; --bad: #a00d19; --link: #000; }
  body { font-size: 10pt; } nav { display: none; } main { max-width: none; padding: 0; }
  .scroll, .figure { overflow: visible; } .figure, .claims tr { break-inside: avoid; }
  .figure svg { max-width: 100%; min-width: 0; } h2 { break-after: avoid; }
  details::details-content { content-visibility: visible; height: auto; }
  .embspace td, .embspace th { padding-right: .5em; font-size: 8pt; }
}
"""


@report.register
def _(result: Reproduction) -> Report:
    columns = (
        text("claim", lambda v: v.claim.says),
        text("where", lambda v: v.claim.place, "faint", drop=2),
        text("paper", lambda v: v.claim.number, "faint", drop=1),
        text("ours", found_line, "value"),
        text("", lambda v: v.verdict, "key"),
    )
    table = Table.of(result.verdicts, columns, breaks=range(1, len(result.verdicts)))
    quick = (QUICK,) if result.quick else ()
    title = joined(TITLES[result.paper], model_name(result.models["model"]))
    return Report(title, tally(result), (table,), (RULE, *quick, *result.notes))


def tally(result: Reproduction) -> str:
    """`12 hold · 3 do not · 1 undecided · 2 not applicable`."""
    n = result.count()
    tied = f" · {n[TIED]} undecided" if n[TIED] else ""
    return f"{n[HOLDS]} hold · {n[FAILS]} do not{tied} · {n[VOID]} not applicable"


def found_line(verdict: Verdict) -> str:
    """What was measured, or why nothing was; whether it is a close call."""
    close = "; intervals overlap" if verdict.close else ""
    return shown((verdict.ours or verdict.reason) + close)


class Looks:
    """What `evidence.reproduction.reproduce` asks for: tables, figures and the page, as we draw."""

    def require(self) -> None:
        """Raise EmbspaceError where figures cannot be drawn."""
        require_plot(FIGURES[0])

    def draw(self, result: Result, folder: Path) -> None:
        """Write the table of a step, and its figures where it has one."""
        (folder / STEP_PAGE).write_text(fragment(result), encoding="utf8")
        for file in FIGURES if has_figure(result) else ():
            plot(result, folder / file)

    def page(self, result: Reproduction, kept: Mapping[str, Kept]) -> str:
        """The page of all claims and steps."""
        return page(result, kept)


LOOKS = Looks()


def page(result: Reproduction, kept: Mapping[str, Kept]) -> str:
    """The whole page: claims first, then each step with its figure and its table."""
    name = model_name(result.models["model"])
    sections = "".join(_section(step, kept.get(step.name)) for step in result.steps)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        f"<title>{escape(TITLES[result.paper])}: {escape(name)}</title>"
        f"<style>{CSS}{LOOK}</style></head>\n<body><main>"
        f"{_head(result, name)}{_claims(result)}{sections}{_foot(result)}"
        "</main></body></html>\n"
    )


def _head(result: Reproduction, name: str) -> str:
    number = PAPERS[result.paper]
    quick = f'<p class="warn">{escape(QUICK)}</p>' if result.quick else ""
    links = "".join(
        f'<a href="#{escape(step.name)}">{escape(step.title)}</a> ' for step in result.steps
    )
    return (
        f"<header><h1>{escape(TITLES[result.paper])}<br>on {escape(name)}</h1>"
        f'<p><a href="https://arxiv.org/abs/{number}">arXiv {number}</a></p>'
        f'<p class="tally">{escape(tally(result))}</p>{quick}'
        f'<p class="soft">{escape(RULE)}</p><nav>{links}</nav></header>'
    )


def _claims(result: Reproduction) -> str:
    names = ("Claim", "Where", "Paper", "Ours", "")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(_claim(verdict) for verdict in result.verdicts)
    return (
        '<section id="claims"><h2>Claims</h2><table class="claims">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        '<p class="soft">As data: <a href="claims.json">claims.json</a>, '
        '<a href="claims.csv">claims.csv</a></p></section>\n'
    )


def _claim(verdict: Verdict) -> str:
    claim = verdict.claim
    kind = {HOLDS: "holds", FAILS: "fails"}.get(verdict.verdict, "void")
    ours = found_line(verdict)
    return (
        f'<tr class="{kind}"><td class="says">{escape(claim.says)}'
        f'<div class="rule">{escape(claim.rule)}</div></td>'
        f'<td data-of="where">{escape(claim.place)}</td>'
        f'<td data-of="paper">{escape(claim.number)}</td>'
        f'<td data-of="ours">{escape(ours)}</td>'
        f'<td class="verdict">{escape(verdict.verdict)}</td></tr>'
    )


def _section(step: Done, kept: Kept | None) -> str:
    place = f' <span class="soft">{escape(step.place)}</span>' if step.place else ""
    head = f'<section id="{escape(step.name)}"><h2>{escape(step.title)}{place}</h2>'
    if kept is None:
        return (
            f'{head}<p class="soft">Not applicable: {escape(shown(step.why_not))}</p></section>\n'
        )
    drawing = kept.text(FIGURES[0])
    figure = _figure(drawing, step) if drawing else ""
    return f"{head}{figure}{_table(step, kept)}</section>\n"


def _figure(drawing: str, step: Done) -> str:
    return f'<div class="figure">{inlined(drawing, step.name, step.title)}</div>'


def _table(step: Done, kept: Kept) -> str:
    table = f'<div class="scroll embspace">{kept.text(STEP_PAGE) or ""}</div>'
    if len(table) > LONG:
        table = f"<details><summary>The whole table</summary>{table}</details>"
    files = [TABLE, RESULT, *(name for name in FIGURES if (kept.folder / name).is_file())]
    links = ", ".join(f'<a href="{escape(step.name)}/{name}">{name}</a>' for name in files)
    return f'{table}<p class="soft">As files: {links}</p>'


def _foot(result: Reproduction) -> str:
    rows = "".join(
        f"<li>{escape(role)}: {escape(model_name(of))}, {escape(' '.join(origin(of)))}</li>"
        for role, of in result.models.items()
    )
    notes = "".join(f"<p>{escape(shown(note))}</p>" for note in result.notes)
    return (
        f'<footer class="soft"><h2>Made by</h2><p>embspace {__version__}</p>'
        f"<ul>{rows}</ul>{notes}</footer>"
    )


def inlined(drawing: str, name: str, title: str) -> str:
    """An SVG file as part of a page: no prolog, no metadata, its ids set apart by `name`."""
    svg = drawing[drawing.index("<svg") :]
    for gone in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r"<!--.*?-->"):
        svg = re.sub(gone, "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    head = svg[: svg.index(">")]
    width = re.search(r'width="([\d.]+)pt"', head)
    sized = re.sub(r' (?:width|height)="[^"]*"', "", head)
    most = f"{width[1]}pt" if width else "100%"
    labelled = (
        f'{sized} role="img" aria-label="{escape(title)}" style="width:100%;max-width:{most}"'
    )
    return labelled + svg[len(head) :]
