"""Tables fit their terminal, line up, and show every token as it is."""

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

import embspace
from embspace.read.vectors import Token, VectorTokens
from embspace.show import as_rich, as_text, together
from embspace.show.report import Column, Table
from embspace.show.terminal import TerminalTable
from embspace.show.topics.surveys import NeuronLine, PairLine, largest_of

WIDTHS = (40, 80, 200)


@pytest.fixture(scope="module")
def model(awkward):
    return embspace.load(awkward)


@pytest.fixture(scope="module")
def results(model):
    from embspace.read.neurons import read_neurons

    return {
        "pairs": model.heads[1, 0].vo.top_pairs(2000),
        "scores": model.heads[1, 0].qk.top_pairs(20, smallest=True),
        "vector": model.vectors(0, 1, "o")[3].top_tokens(39),
        "neuron": read_neurons(model.ff[1], [5], 39)[0],
        "token": model.token("word3", k=30)[0],
        "related": model.related(1, k=10, overlap=0.05),
        "certificate": embspace.certify(model),
    }


NAMES = ["pairs", "scores", "vector", "neuron", "token", "related", "certificate"]


def printed(renderable, width: int, encoding: str = "utf-8") -> str:
    """What a plain terminal of some width and encoding shows; it must be able to encode it."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    Console(file=file, width=width).print(renderable)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_the_terminal(results, name, width):
    shown = printed(as_rich(results[name]), width)
    assert max(cell_len(line.rstrip()) for line in shown.split("\n")) <= width


@pytest.mark.parametrize("name", ["pairs", "vector", "neuron"])
def test_every_token_is_shown_whole_at_80(results, model, name):
    shown = printed(as_rich(results[name]), 80)
    for label in model.vocabulary.labels:
        assert label in shown or len(label) > 50, label


def test_markup_in_tokens_is_not_interpreted(results):
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    console.print(as_rich(results["vector"]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for literal in ("[red]", "[/]", "[bold]x[/bold]", ":smile:"):
        assert literal in shown
    assert "\x1b[31m" not in shown


def test_columns_line_up_whatever_the_tokens(results):
    shown = printed(as_rich(results["scores"]), 80)
    arrows = {cell_len(line[: line.index("→")]) for line in shown.split("\n")[3:] if "→" in line}
    assert len(arrows) == 1


def test_right_to_left_tokens_are_isolated(results):
    shown = printed(as_rich(results["vector"]), 80)
    assert "\u2068שלום\u2069" in shown
    assert "\u2068日本語\u2069" not in shown


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("name", NAMES)
def test_terminals_that_lack_characters_get_escapes(results, name, encoding):
    shown = printed(as_rich(results[name]), 80, encoding)
    assert max(len(line.rstrip()) for line in shown.split("\n")) <= 80
    if name == "vector":
        assert r"\u65e5\u672c\u8a9e" in shown


def test_narrow_tables_keep_the_tokens_and_give_up_numbers(results):
    narrow, wide = (printed(as_rich(results["neuron"]), width) for width in (40, 200))
    (head,) = (line for line in narrow.split("\n") if line.startswith("key"))
    assert "score" in wide and "score" not in head and "value" in head
    assert "terminal: score)" in " ".join(narrow.split())


def test_wide_terminals_show_circuits_side_by_side(model):
    results = [
        model.heads[0, 0].circuit(name).top_pairs(5, filters="re:^word") for name in ("vo", "qk")
    ]
    side_by_side = re.compile(r"W_VO.*W_QK")
    assert side_by_side.search(printed(together(results), 200))
    narrow = printed(together(results), 60)
    assert not side_by_side.search(narrow) and "W_QK" in narrow


@pytest.mark.parametrize("width", WIDTHS)
def test_a_survey_takes_one_line_a_result(results, width):
    for line in (PairLine(results["pairs"]), NeuronLine(results["neuron"])):
        shown = printed(line, width)
        assert shown.count("\n") == 1
        assert cell_len(shown.rstrip()) <= width


def test_a_pipe_gets_all_of_a_survey_line(results, model):
    shown = printed(NeuronLine(results["neuron"]), 100_000)
    assert all(token.label in shown for token in results["neuron"].vectors["value"].top)


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="not a result"):
        as_rich("text")


def test_results_show_themselves(results):
    assert "W_VO" in printed(results["pairs"], 80)


def test_tokens_of_a_survey_are_not_dimmed(results):
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    console.print(PairLine(results["pairs"]))
    console.print(NeuronLine(results["neuron"]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[36m" in shown and "\x1b[2;36m" not in shown and "\x1b[2;35m" not in shown


def test_very_many_rows_are_printed_in_columns(results):
    shown = printed(as_rich(results["pairs"]), 80).split("\n")
    assert len(results["pairs"].pairs) > 1000
    arrows = {cell_len(line[: line.index("→")]) for line in shown[4:] if "→" in line}
    assert len(arrows) == 1


def test_endless_labels_are_cut_in_tables_only():
    found = VectorTokens("value 1", 1.0, 0.5, (Token(3, "ab" * 5000, 1.5, "ab" * 5000),), ())
    shown = as_text(found)
    assert "ab" * 30 in shown and "…" in shown
    assert max(map(cell_len, shown.split("\n"))) < 120
    assert "ab" * 5000 in found.to_json() and "ab" * 5000 in found.to_csv()


def test_a_score_that_chance_explains_is_dim(results):
    def ansi(renderable) -> str:
        console = Console(file=io.StringIO(), width=80, force_terminal=True)
        console.print(renderable)
        return console.file.getvalue()  # type: ignore[attr-defined]

    few = replace(results["pairs"], pairs=results["pairs"].pairs[:1])
    peak = few.pairs[0].score / few.rms
    for noise, dim in ((peak + 1, True), (peak - 1, False)):
        assert (f"\x1b[2m{peak:>6.1f}" in ansi(PairLine(few, noise))) is dim
        assert (f"\x1b[2m{peak:.2f}" in ansi(together([few], noise))) is dim


def test_what_chance_explains_grows_slowly():
    assert largest_of(50_000**2) == pytest.approx(6.58, abs=0.01)
    assert largest_of(50_000) == pytest.approx(4.65, abs=0.01)


def test_lists_that_do_not_fit_say_so(results):
    for line in (PairLine(results["pairs"]), NeuronLine(results["neuron"])):
        assert "…" in printed(line, 80)


def test_text_is_plain_and_as_wide_as_asked(results):
    shown = as_text(results["pairs"], 60)
    assert "\x1b" not in shown and max(map(cell_len, shown.split("\n"))) <= 60


@pytest.mark.parametrize("width", [12, 20, 27, 33, 40, 200])
def test_numbers_are_whole_or_left_out_and_what_is_left_out_is_counted(width):
    columns = [Column("layer", "number"), Column("the first one", "number")]
    columns += [Column("second", "number"), Column("third of them", "number", drop=1)]
    table = Table(tuple(columns), ((0, -0.125, 1234.5, 7.25), (10, 0.5, 2.25, -9.0)))
    shown = printed(TerminalTable(table), width)
    left_out = re.search(r"\((\d)\s+more", shown)
    n = 4 - int(left_out[1] if left_out else 0)
    rows = [line.split() for line in shown.split("\n") if re.fullmatch(r"[-. \d]+", line)]
    assert rows == [list(cells[:n]) for cells in table.cells]
    assert max(map(len, shown.split("\n"))) <= width


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_a_long_table_clips_words_and_never_numbers(width, encoding):
    columns = (
        Column("token", kind="token"), Column("score", kind="number"),
        Column("what it is", kind="text"), Column("last", kind="number"),
    )  # fmt: skip
    rows = tuple((f"token {n} " + "long " * (n % 9), f"{n}.25", "words " * 12, f"{n}.75")
                 for n in range(1200))  # fmt: skip
    shown = printed(TerminalTable(Table(columns, rows)), width, encoding).split("\n")
    assert all(cell_len(line.rstrip()) <= width for line in shown)
    kept = [name for name in ("score", "last") if name in shown[0]]
    if width < 60:  # a number that has no room is left out as a whole, and named
        assert "2 more columns in a wider terminal: score, last" in "".join(shown[1201:])
    else:
        assert kept == ["score", "last"]
    ends = {"score": ".25", "last": ".75"}
    for n, line in enumerate(shown[1:1201]):
        assert line.startswith(f"token {n}")
        assert re.findall(r"\d+\.\d*", line) == [f"{n}{ends[name]}" for name in kept]


def test_a_bar_that_finds_no_room_is_left_out_without_a_word():
    columns = (Column("layer", kind="number"), Column("", "text", "faint", drop=1))
    table = Table(columns, ((1, "#" * 30), (2, "#" * 60)))
    assert "more column" not in printed(TerminalTable(table), 40)
    assert "#" in printed(TerminalTable(table), 100)


PRINT = """
from embspace.read.vectors import Token, VectorTokens
print(VectorTokens("value 1", 1.0, 0.5, (Token(3, "ab " * 25, 1.5, ""),), (), {}, {}))
print(VectorTokens("value 1", 1.0, 0.5, (), (), {"filters": ["text"] * 60}, {}))
"""


def test_print_fills_a_hundred_cells_in_a_pipe():
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run([sys.executable, "-c", PRINT], env=env, capture_output=True, text=True)
    assert 90 < max(map(cell_len, done.stdout.split("\n"))) <= 100, done.stderr


@pytest.mark.parametrize("width", [57, 133])
def test_print_is_as_wide_as_the_terminal(width):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen([sys.executable, "-c", PRINT], env=env, stdout=theirs) as running:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone when the process has ended
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    lines = shown.decode("utf8").replace("\r", "").split("\n")
    assert running.returncode == 0 and width - 12 < max(map(cell_len, lines)) <= width
