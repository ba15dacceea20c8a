"""Model folders with any value in their configs, and damaged classifiers: refused or read."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import embspace
from embspace.between import classifier_folder as tuning
from embspace.between.classifier import BIAS, RECORD, WEIGHT, read_head
from embspace.between.stitched_model import load_stitched, stitched
from embspace.errors import EmbspaceError
from embspace.read.reader import load

from .damage import edit, with_tensors

BAD: tuple[Any, ...] = (None, "x", "", -1, 0, 1, 1.5, [], [1], {}, {"a": 1}, 10**30, True)
MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def told(read: Callable[[], Any]) -> Any:
    """The result, or None where an error of ours said in one sentence why there is none."""
    try:
        return read()
    except EmbspaceError as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) < 900
        return None


def looked_at(folder: Path) -> Any:
    """A model opened, and as much read of it as its sizes decide."""
    model = load(folder)
    heads = [model.attention(l).W_O.shape for l in range(min(3, model.n_layers))]
    values = model.feed_forward(0).values.shape
    return model.vocabulary.labels[:3], heads, values, model.provenance, model.notes


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_any_value_of_any_setting_is_refused_or_read(tiny_gpt2, tiny_llama, copy, family: str):
    folder = copy(tiny_gpt2 if family == "gpt2" else tiny_llama)
    config = json.loads((folder / "config.json").read_text())
    for key in config:
        for value in BAD:
            (folder / "config.json").write_text(json.dumps({**config, key: value}))
            told(lambda: looked_at(folder))
    (folder / "config.json").write_text(json.dumps(config))
    assert looked_at(folder)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
@MANY
@given(data=st.data())
def test_a_damaged_tokenizer_is_refused_or_read(tiny_gpt2, tmp_path, file: str, data):
    folder = tmp_path / "copy"
    if not folder.exists():
        shutil.copytree(tiny_gpt2, folder)
    content = bytearray((tiny_gpt2 / file).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    (folder / file).write_bytes(content)
    labels = told(lambda: load(folder).vocabulary.labels)
    assert labels is None or len(set(labels)) == len(labels)


@pytest.fixture(scope="module")
def tuned(tiny_gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small GPT-2 with a head of two labels, as a training would save it."""
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path_factory.mktemp("tuned") / "made"))
    with_tensors(folder, **{WEIGHT: torch.randn(2, 32), BIAS: torch.randn(2)})
    record = {"labels": ["bad", "good"], "blocks_trained": 1, "base_hash": "0" * 16, "base": "x"}
    (folder / RECORD).write_text(json.dumps(record))
    (folder / tuning.MARKS).write_text(json.dumps(["0" * 12]))
    return folder


@MANY
@given(data=st.data())
def test_a_damaged_record_of_a_classifier_is_refused_or_read(tuned, tmp_path, data):
    folder = tmp_path / "copy"
    if not folder.exists():
        shutil.copytree(tuned, folder)
    record = json.loads((tuned / RECORD).read_text())
    key = data.draw(st.sampled_from([*record, "kind", "max_tokens", "keep"]))
    record[key] = data.draw(st.sampled_from([*BAD, ["a", "a"], ["a", 1], ["a", "b", "c"]]))
    said = json.dumps(record)
    if data.draw(st.booleans()):
        said = said[: data.draw(st.integers(0, len(said)))]
    (folder / RECORD).write_text(said)
    (folder / tuning.MARKS).write_text(data.draw(st.sampled_from(["", "{", "3", "[3]", "[]"])))
    model = load(folder)
    head = told(lambda: read_head(model))
    if head is not None:
        assert head.weight.shape == (len(head.labels), 32) and 0 <= head.n_blocks <= 3
    assert isinstance(tuning.read_marks(model), frozenset)


@pytest.mark.parametrize("shape", [(3, 32), (2, 31), (64,), (0, 32)])
def test_a_head_of_another_shape_is_refused(tuned, copy, shape):
    folder = with_tensors(copy(tuned), **{WEIGHT: torch.zeros(shape)})
    with pytest.raises(EmbspaceError, match=WEIGHT):
        read_head(load(folder))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_head_of_no_numbers_is_refused(tuned, copy, value: float):
    folder = with_tensors(copy(tuned), **{WEIGHT: torch.full((2, 32), value)})
    with pytest.raises(EmbspaceError, match="NaN or infinity"):
        read_head(load(folder))


@MANY
@given(data=st.data())
def test_a_damaged_state_of_a_training_is_refused_or_whole(tmp_path, data):
    path = tmp_path / "x.training.safetensors"
    tensors = {"a": torch.arange(40.0), "b": torch.ones(3, 3)}
    counts = {"identity": {"seed": 0}, "counts": {"epoch": 1, "step": 7}}
    tuning.save_state(path, tensors, counts)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    path.write_bytes(content)
    found = told(lambda: tuning.load_state(path))
    if found is not None:
        assert found[1] == counts and set(found[0]) == set(tensors)
        assert all(torch.equal(found[0][name], tensors[name]) for name in tensors)


@pytest.fixture(scope="module")
def joined(tuned: Path, tiny_gpt2: Path) -> Path:
    """A saved stitched model."""
    stitched(load(tiny_gpt2), load(tuned), n_kept=1).save(tuned.parent / "joined")
    return tuned.parent / "joined"


@settings(MANY, max_examples=40)
@given(data=st.data())
def test_a_damaged_stitched_model_is_refused_or_whole(joined, tmp_path, data):
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(joined, folder)
    path = folder / data.draw(st.sampled_from(["stitched.json", "kernel.safetensors"]))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    path.write_bytes(content)
    assert told(lambda: load_stitched(folder)) is None


def test_a_stitched_model_that_nobody_changed_is_read(joined):
    assert load_stitched(joined).labels == ("bad", "good")


@pytest.mark.parametrize("key", ["a", "b", "kept_blocks", "transplanted_blocks"])
def test_a_record_of_a_stitched_model_of_wrong_kinds_is_refused(joined, copy, key: str):
    folder = copy(joined)
    for value in (None, "x", -1, 9, [], {}, {"model": 3}, 10**30):
        edit(folder, "stitched.json", **{key: value})
        assert told(lambda: load_stitched(folder)) is None


@pytest.mark.parametrize("family", ["shell", "home"])
def test_names_that_a_shell_would_run_are_names(tmp_path, monkeypatch, family: str):
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("ran something"))
    name = {"shell": "$(touch x);`touch y`|z", "home": "~root/../../etc"}[family]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EmbspaceError):
        embspace.load(name)
    assert list(tmp_path.iterdir()) == []


def test_a_shard_index_with_a_thousand_names_of_one_file_is_read_once(tiny_gpt2, copy):
    folder = copy(tiny_gpt2)
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    names = {f"x{n}": "one.safetensors" for n in range(1000)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(EmbspaceError, match="lacks x0"):
        load(folder)


def test_settings_that_point_outside_the_folder_read_and_write_nothing_there(copy, tiny_gpt2):
    folder = copy(tiny_gpt2)
    outside = folder.parent / "outside.json"
    outside.write_text("secret")
    edit(folder, "tokenizer_config.json", tokenizer_file="../outside.json", vocab_file=str(outside))
    labels = told(lambda: load(folder).vocabulary.labels)
    assert labels is None or "secret" not in "".join(labels)
    assert outside.read_text() == "secret"
