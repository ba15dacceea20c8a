"""Figures are whole files of the kind asked for, the same each time, or a clear refusal."""

import builtins
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import embspace
from embspace.between.alignment import GroupAlignment, align
from embspace.between.matching import match_layers
from embspace.between.state_alignment import align_states
from embspace.errors import EmbspaceError
from embspace.show import plot
from embspace.show.figures import COLOURS, DASHES, MARKS, drawn, require_plot
from embspace.show.topics.alignment import NAMES

pytest.importorskip("matplotlib")
BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def result(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    return align(model, model, groups=["V", "W_Q"])


@pytest.mark.parametrize("kind", BEGINS)
def test_a_figure_is_of_its_kind_and_the_same_each_time(result, kind, tmp_path):
    one, other = tmp_path / f"one.{kind}", tmp_path / f"other.{kind.upper()}"
    plot(result, one)
    plot(result, other)
    assert one.read_bytes().startswith(BEGINS[kind])
    assert one.read_bytes() == other.read_bytes()


def test_every_group_and_space_has_its_panel_and_axes_are_named(result, tmp_path):
    path = tmp_path / "panels.svg"
    plot(result, path)
    text = path.read_text(encoding="utf8")
    for title in ("V, vocabulary space", "W_Q, feature space", "mean |correlation|", "layer of"):
        assert title in text


def test_states_have_a_panel_a_measure_with_both_models_beside_them(tiny_gpt2, tmp_path):
    model = embspace.load(tiny_gpt2)
    text = [f"Her sister teaches {n} doctors in Rome and grows wheat." for n in range(40)]
    found = align_states(model, model, text, words=60)
    plot(found, tmp_path / "states.svg")
    text = (tmp_path / "states.svg").read_text(encoding="utf8")
    for title in (*(NAMES[name].split(",")[0] for name in found.measures), "state of"):
        assert title in text


def test_layers_without_a_score_and_groups_without_feature_space_are_drawn(result, tmp_path):
    score = torch.rand(3, 3)
    score[1] = torch.nan
    groups = result.groups | {"V": GroupAlignment(match_layers(score), None)}
    plot(replace(result, groups=groups), tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["plot", "plot.txt", "plot.svg.gz", "none/plot.svg"])
def test_other_files_are_refused_before_any_work(name, tmp_path):
    with pytest.raises(EmbspaceError, match=r"\.png, \.svg or \.pdf|no folder"):
        require_plot(tmp_path / name)


def test_without_matplotlib_the_way_to_install_it_is_named(tmp_path, monkeypatch):
    def lacking(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", lacking)
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EmbspaceError, match=r"pip install 'embspace\[plot\]'"):
        require_plot(tmp_path / "x.png")


def test_a_drawing_that_fails_leaves_no_file(tmp_path):
    path = tmp_path / "x.png"
    with pytest.raises(ZeroDivisionError), drawn(path, 2, 2):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_lines_differ_in_more_than_colour():
    assert len(COLOURS) == len(DASHES) == len(MARKS)
    for each in (COLOURS, DASHES, MARKS):
        assert len(set(map(str, each))) == len(each)


DRAW = """
import sys
from embspace.show.figures import drawn
with drawn(sys.argv[1], 3, 2) as figure:
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4])
    axes.set_title("50 $ and 3_4")
"""


def _drawn_by_a_process(path, folder, **env):
    command = [sys.executable, "-c", DRAW, str(path)]
    done = subprocess.run(command, cwd=folder, env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


def test_neither_mplbackend_nor_matplotlibrc_changes_a_figure(tmp_path):
    """A notebook's backend is unknown to other environments; usetex needs a TeX installation."""
    plain, rc = tmp_path / "plain", tmp_path / "rc"
    for folder in (plain, rc):
        folder.mkdir()
    lines = ("text.usetex: True", "backend: GTK4Agg", "font.size: 33", "axes.grid: True")
    (rc / "matplotlibrc").write_text("\n".join(lines))
    wanted = _drawn_by_a_process(plain / "x.svg", plain, MPLBACKEND="")
    assert _drawn_by_a_process(rc / "x.svg", rc) == wanted
    for backend in ("module://matplotlib_inline.backend_inline", "module://no_such", "qtagg"):
        assert _drawn_by_a_process(plain / "x.svg", plain, MPLBACKEND=backend) == wanted


def test_a_figure_leaves_the_users_settings_alone(tmp_path):
    import matplotlib

    with matplotlib.rc_context({"font.size": 33, "text.usetex": True}):
        before = dict(matplotlib.rcParams)
        with drawn(tmp_path / "x.svg", 2, 2) as figure:
            figure.suptitle("x")
        assert dict(matplotlib.rcParams) == before


def test_the_inverse_figure_has_plain_numbers_on_its_axis(tiny_gpt2, tmp_path):
    from embspace.evidence.inverse_check import inverse_check

    plot(inverse_check(embspace.load(tiny_gpt2)), tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text(encoding="utf8")
    assert "mathdefault" not in text and "$" not in text
    assert ">10<" in text and ">100<" in text
