"""Heat maps fit their terminal, and can be read without colours."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from embspace.show.heat_maps import PAPERS
from embspace.show.html import as_html
from embspace.show.report import Column, HeatMap, Report, Table, report
from embspace.show.terminal import TerminalReport


def heat(rows, columns, *, marked=frozenset()):
    """A map whose numbers grow along both axes."""
    values = tuple(tuple(float(i + j) for j in range(columns)) for i in range(rows))
    return HeatMap("a map", values, "A", "B", marked)


def shown(*maps, width=80, **options):
    page = Report("title", "", (Table((Column("x"),), (("1",),)),), (), (maps,))
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, **options).print(TerminalReport(page))
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
    assert [each.level(value) for value in each.values[0]] == list(range(10))
    assert "0 = 0 … 9 = 9" in shown(each)


@pytest.mark.parametrize(("columns", "mark"), [(5, r"\[9\]"), (34, r"\[9\]"), (60, "#")])
def test_marks_show_without_colour(columns, mark):
    text = shown(heat(1, columns, marked=frozenset({(0, columns - 1)})))
    assert re.search(mark, text)


def test_a_missing_number_is_a_dot_and_the_rest_keeps_its_scale():
    each = HeatMap("m", ((1.0, None), (None, 3.0)), "A", "B")
    assert re.search(r"0 +0 +\. *\n +1 +\. +9", shown(each))
    assert "(no numbers)" in shown(HeatMap("m", ((None,),), "A", "B"))


def test_maps_of_one_family_stand_together():
    one, other = heat(3, 6), heat(3, 6)
    page = Report("t", "", (Table((Column("x"),), (("1",),)),), (), ((one, other), (one, other)))
    file = io.StringIO()
    Console(file=file, width=60, color_system=None).print(TerminalReport(page))
    titles = [line.count("a map") for line in file.getvalue().split("\n") if "a map" in line]
    assert titles == [2, 2]


def test_colours_are_set_on_paper_and_ink_together():
    file = io.StringIO()
    page = Report("t", "", (Table((Column("x"),), (("1",),)),), (), ((heat(1, 3),),))
    screen = Console(file=file, width=80, color_system="truecolor", force_terminal=True)
    screen.print(TerminalReport(page))
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

    @report.register
    def _(result: Shown) -> Report:
        marked = frozenset({(0, 1)})
        each = HeatMap("<b>map</b>", ((0.25, 0.5),), "A", "B", marked)
        return Report("t", "", (), (), ((each,),))

    page = as_html(Shown())
    assert "<b>map</b>" not in page and "&lt;b&gt;map" in page
    assert f'<td style="background:{PAPERS[0]};color:#ffffff">0.25</td>' in page
    assert f'<td class="marked" style="background:{PAPERS[9]};color:#000000">0.5</td>' in page


def scores(n, digits=3):
    """Numbers of at most 1, as correlations are; the diagonal is matched."""
    values = tuple(tuple(round(0.2 + 0.005 * (i * n + j) % 0.7, digits) for j in range(n))
                   for i in range(n))  # fmt: skip
    return HeatMap("scores", values, "A", "B", frozenset((i, i) for i in range(n)))


@pytest.mark.parametrize(("n", "width", "decimals"), [(12, 80, 3), (6, 80, 3), (12, 60, 2)])
def test_numbers_are_shown_where_they_fit(n, width, decimals):
    each = scores(n)
    text = shown(each, each, width=width)
    for row, values in enumerate(each.values):
        found = next(line for line in text.split("\n") if re.match(rf" +{row} ?[ \[]", line))
        numbers = re.findall(r"\.\d+", found)[:n]
        assert numbers == [f"{value:.{decimals}f}"[1:] for value in values]
        assert f"[{numbers[row]}]" in found
    assert "9 =" not in text


def test_numbers_give_way_to_digits_where_they_do_not_fit():
    text = shown(scores(30), width=80)
    assert "9 =" in text and not re.search(r"\.\d\d ", text.split("9 =")[1].split("\n", 1)[1])


def test_two_decimals_are_not_shown_of_numbers_that_they_make_alike():
    values = tuple(tuple(0.07 + 0.0001 * (i + j) for j in range(8)) for i in range(8))
    text = shown(HeatMap("a", values, "A", "B"), HeatMap("b", values, "A", "B"), width=80)
    assert ".071" in text


def test_numbers_of_one_and_below_nought_keep_their_sign_and_place():
    text = shown(HeatMap("m", ((1.0, -0.25), (None, 0.0)), "A", "B", frozenset({(0, 1)})))
    assert re.search(r"0 +1\.000\[-\.250\]", text) and re.search(r"1 +\. +\.000", text)


def test_colours_follow_the_shades_and_cells_show_the_values():
    each = HeatMap("m", ((0.9, 0.8),), "A", "B", shades=((-0.1, 0.1),))
    file = io.StringIO()
    page = Report("t", "", (Table((Column("x"),), (("1",),)),), (), ((each,),))
    Console(file=file, width=80, color_system="truecolor", force_terminal=True).print(
        TerminalReport(page)
    )
    first, second = (
        tuple(int(p[n : n + 2], 16) for n in (1, 3, 5)) for p in (PAPERS[0], PAPERS[9])
    )
    for paper, number in ((first, ".900"), (second, ".800")):
        assert re.search(
            f"48;2;{';'.join(map(str, paper))}m[^\x1b]*{re.escape(number)}", file.getvalue()
        )
