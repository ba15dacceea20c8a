"""Heat maps fit their terminal, and can be read without colours."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from embspace.report.heat import PAPERS, level
from embspace.report.html import as_html
from embspace.report.tables import SheetView
from embspace.report.view import Column, HeatMap, Sheet, View
from embspace.report.views import sheet


def heat(rows, columns, *, marked=frozenset()):
    """A map whose numbers grow along both axes."""
    values = tuple(tuple(float(i + j) for j in range(columns)) for i in range(rows))
    return HeatMap("a map", values, "A", "B", marked)


def shown(*maps, width=80, **options):
    page = Sheet("title", "", (View((Column("x"),), (("1",),)),), (), (maps,))
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, **options).print(SheetView(page))
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("size", [(1, 1), (6, 6), (12, 30), (48, 120)])
def test_no_line_is_wider_than_the_terminal(size, width):
    lines = shown(heat(*size), heat(*size), width=width).split("\n")
    assert max(cell_len(line.rstrip()) for line in lines) <= width


@pytest.mark.parametrize("width", [20, 80, 200])
def test_every_cell_is_shown_once_at_any_width(width):
    rows, columns = 3, 97
    lines = shown(heat(rows, columns, marked=frozenset({(1, 50)})), width=width).split("\n")
    for row in range(rows):
        mine = [line[4:] for line in lines if re.match(rf" +{row} ", line)]
        cells = re.sub(r"[ \[\]*]", "", "".join(mine))
        assert len(cells) == columns


def test_digits_run_from_the_smallest_to_the_largest():
    each = heat(1, 10)
    assert [level(each, value) for value in each.values[0]] == list(range(10))
    assert "0 = 0 … 9 = 9" in shown(each)


@pytest.mark.parametrize(("columns", "mark"), [(5, r"\[9\]"), (34, r"\*9"), (60, "#")])
def test_marks_show_without_colour(columns, mark):
    text = shown(heat(1, columns, marked=frozenset({(0, columns - 1)})))
    assert re.search(mark, text)


def test_a_missing_number_is_a_dot_and_the_rest_keeps_its_scale():
    each = HeatMap("m", ((1.0, None), (None, 3.0)), "A", "B")
    assert re.search(r"0 +0 +\. *\n +1 +\. +9", shown(each))
    assert "(no numbers)" in shown(HeatMap("m", ((None,),), "A", "B"))


def test_maps_of_one_family_stand_together():
    one, other = heat(3, 6), heat(3, 6)
    page = Sheet("t", "", (View((Column("x"),), (("1",),)),), (), ((one, other), (one, other)))
    file = io.StringIO()
    Console(file=file, width=80, color_system=None).print(SheetView(page))
    titles = [line.count("a map") for line in file.getvalue().split("\n") if "a map" in line]
    assert titles == [2, 2]


def test_colours_are_set_on_paper_and_ink_together():
    file = io.StringIO()
    page = Sheet("t", "", (View((Column("x"),), (("1",),)),), (), ((heat(1, 3),),))
    screen = Console(file=file, width=80, color_system="truecolor", force_terminal=True)
    screen.print(SheetView(page))
    styles = re.findall(r"\x1b\[([0-9;]*48;2[0-9;]*)m", file.getvalue())
    assert styles
    for style in styles:
        assert "38;2;" in style  # readable whatever the terminal's own colours


def test_neighbouring_shades_grow_lighter():
    def light(paper):
        r, g, b = (int(paper[n : n + 2], 16) for n in (1, 3, 5))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    lights = [light(paper) for paper in PAPERS]
    assert lights == sorted(lights)


def test_a_page_shows_each_number_over_its_shade():
    class Shown:
        pass

    @sheet.register
    def _(result: Shown) -> Sheet:
        marked = frozenset({(0, 1)})
        each = HeatMap("<b>map</b>", ((0.25, 0.5),), "A", "B", marked)
        return Sheet("t", "", (), (), ((each,),))

    page = as_html(Shown())
    assert "<b>map</b>" not in page and "&lt;b&gt;map" in page
    assert f'<td style="background:{PAPERS[0]};color:#ffffff">0.25</td>' in page
    assert f'<td class="marked" style="background:{PAPERS[9]};color:#000000">0.5</td>' in page
