"""Hostile words, filters, options and calls are refused in words."""

import json
import os
from pathlib import Path

import pytest
import torch

import embspace
from embspace.cache import write_atomically
from embspace.errors import EmbspaceError, ModelError
from embspace.read.reader import load

from .damage import ATTENTION, in_one_line, with_tensors

HEAD = ("--layer", 0, "--head", 0)


@pytest.mark.parametrize("word", ["", " ", "#-1000", "#99999999999999999999", "unheard"])
def test_words_that_are_none_are_one_line(tiny_gpt2, run, word):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--token", word))


def test_a_word_that_is_no_text_is_one_line(tiny_gpt2, run):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--token", "\udcff"))


@pytest.mark.parametrize(
    "name", ["", "file:", "file:/", "file:/dev/null", "re:nonexistent", "re:(", "letters"]
)
def test_filters_that_are_none_are_one_line(tiny_gpt2, run, name):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--filter", name))


@pytest.mark.parametrize("name", ["file:a\0b", "re:a{99999999999}", "re:" + "(" * 5000])
def test_filters_beyond_reason_are_one_line(tiny_gpt2, run, name):
    in_one_line(run("heads", tiny_gpt2, *HEAD, "--filter", name))


def test_a_filter_that_leaves_one_token_works(tiny_gpt2, run):
    one = ("--filter", "re:^Z$")
    result = run("heads", tiny_gpt2, *HEAD, *one, "--json")
    assert all(len(circuit["pairs"]) == 1 for circuit in json.loads(result.stdout)["heads"])
    result = run("heads", tiny_gpt2, *HEAD, *one, "--exclude-same", "--json")
    assert all(circuit["pairs"] == [] for circuit in json.loads(result.stdout)["heads"])
    assert run("heads", tiny_gpt2, *one, "--exclude-same").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("ff", "--layer", 0, "--expert", "²"),
        ("ff", "--layer", 0, "--expert", "٣"),
        ("heads", "--device", "meta"),
        ("heads", "--device", "mps"),
        ("heads", "--device", "xla"),
        ("check", "--seed", 10**30),
    ],
    ids=str,
)
def test_option_values_beyond_reason_are_one_line(tiny_gpt2, run, arguments):
    command, *rest = arguments
    in_one_line(run(command, tiny_gpt2, *rest))


@pytest.mark.parametrize("name", ["~nobody-here/x", "x" * 5000, "a\0b"])
def test_names_beyond_reason_are_refused(name):
    with pytest.raises(ModelError, match="cannot be opened"):
        load(name)


@pytest.mark.parametrize("name", ["~nobody-here/x", "x" * 5000], ids=["home", "long"])
def test_names_beyond_reason_are_one_line(run, name):
    in_one_line(run("heads", name))
    in_one_line(run("models", name))


def test_csv_to_a_link_writes_where_it_points(tiny_gpt2, run, tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.touch()
    link.symlink_to(target)
    assert run("heads", tiny_gpt2, *HEAD, "--csv", link).exit_code == 0
    assert link.is_symlink() and target.stat().st_size


def test_files_are_written_to_what_is_there_and_folders_are_not_made(tmp_path):
    with pytest.raises(EmbspaceError, match="is a folder"):
        write_atomically(tmp_path, "x")
    with pytest.raises(EmbspaceError, match="there is no folder") as caught:
        write_atomically(tmp_path / "none" / "x.csv", "x")
    assert ".embspace-" not in str(caught.value) and not any(tmp_path.iterdir())
    write_atomically(tmp_path / "made" / "x.csv", "x", make_folder=True)
    with pytest.raises(EmbspaceError, match="is a device"):
        write_atomically(Path(os.devnull), "x")
    assert Path(os.devnull).is_char_device()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(EmbspaceError, match="cannot be written"):
        write_atomically(tmp_path / "loop", "x")


def test_a_failure_at_the_first_line_prints_no_heading(tiny_gpt2, copy, run):
    packed = torch.zeros(32, 96, dtype=torch.uint8)
    result = run("heads", with_tensors(copy(tiny_gpt2), **{ATTENTION: packed}), "-k", 1)
    assert result.exit_code == 1 and "packed" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "misuse",
    [
        lambda m: m.heads[-1, 0],
        lambda m: m.heads[0, 99],
        lambda m: m.ff[-1],
        lambda m: m.ff[0].values[-1],
        lambda m: m.ff[0].values[99],
        lambda m: m.token(""),
        lambda m: embspace.certify(m, layers=[]),
        lambda m: embspace.certify(m, layers=[99]),
        lambda m: m.vocabulary.project(torch.ones(3)),
        lambda m: m.vocabulary.project(torch.full((1, m.d), torch.nan)),
        lambda m: m.heads[0, 0].circuit("qk", distance=1).top_pairs(1),
    ],
)
def test_misuse_is_an_error_of_ours(tiny_gpt2, misuse):
    with pytest.raises(EmbspaceError):
        misuse(embspace.load(tiny_gpt2))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda m: m.heads[0, 0].circuit("vq").top_pairs(1),  # read as qk
        lambda m: m.heads[0, 0].circuit("vo", norm="fold").top_pairs(1),  # half folded
        lambda m: m.heads[0, 0].circuit("vo", inverse="svd").top_pairs(1),  # read as pinv
        lambda m: m.heads[0.5, 0],
        lambda m: m.ff[0].values[1.5].top_tokens(1),
        lambda m: m.ff[0].values.top_tokens(1, only=[-1]),
        lambda m: m.ff[0].values[0].top_tokens(-1),
        lambda m: m.ff[0].values[0].top_tokens(0),
        lambda m: m.ff[0].values.top_tokens(1, only=[99]),
        lambda m: m.ff[0].values.top_tokens(1, only=[True]),
        lambda m: m.ff[0].values.top_tokens(1, only=torch.ones(52, dtype=torch.bool)),
        lambda m: m.ff[0].values.top_tokens(1, only=3),
        lambda m: m.ff[0].values[1:3],
        lambda m: m.ff["a"],
        lambda m: m.ff[0:2],
        lambda m: m.ff[0, 1, 2],
        lambda m: m.heads[0],
        lambda m: m.heads[True, 0],
        lambda m: m.heads[0, 0].circuit("qk", distance=1.5),
        lambda m: m.heads[0, 0].vo.top_pairs(1.5),
        lambda m: m.heads[0, 0].vo.top_pairs(-1),
        lambda m: m.heads[0, 0].vo.top_pairs(True),
        lambda m: m.heads[0, 0].vo.top_pairs(1, filters=3),
        lambda m: m.heads[0, 0].vo.top_pairs(1, filters=[None]),
        lambda m: m.heads[0, 0].vo.row(3),
        lambda m: m.token(3),
        lambda m: m.token("#1", 0),
        lambda m: m.token("#" + "9" * 5000),
        lambda m: m.vectors(0, 0, "x"),
        lambda m: m.related(0, k=0),
        lambda m: next(m.survey(layers=0)),
        lambda m: embspace.certify(m, layers=0),
        lambda m: embspace.certify(m, seed=-1),
        lambda m: embspace.load(m.folder, family="gpt2"),
        lambda m: embspace.load(m.folder, device=None),
        lambda m: embspace.load(m.folder, device="cpu:1"),
    ],
)
def test_misuse_is_never_answered_silently(tiny_gpt2, misuse):
    with pytest.raises(EmbspaceError):
        misuse(embspace.load(tiny_gpt2))
