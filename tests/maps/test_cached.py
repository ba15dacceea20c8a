"""Maps fitted on the spot are found again by the content of all that decided them, never stale."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from embspace.maps import remembered as cached
from embspace.maps.remembered import fitted, forget, remembered
from embspace.read.reader import load
from embspace.text.text import Text


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of each test's own."""
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_same_fit_is_remembered_to_the_bit(tiny_gpt2, corpus):
    model = load(tiny_gpt2)
    first, known = fitted(model, Text.read(corpus, seed=1))
    again, known_again = fitted(load(tiny_gpt2), Text.read(corpus, seed=1))
    assert (known, known_again) == (False, True)
    assert all(torch.equal(again.tensors[name], x) for name, x in first.tensors.items())


TEXTS: tuple[dict[str, Any], ...] = (
    {"seed": 1},
    {"positions": 2},
    {"max_tokens": 5},
    {"special": False},
    {"skip_first": 1},
    {"fit": range(50)},
    {"held_out": 0.5},
)
FITS: tuple[dict[str, Any], ...] = (
    {"kind": "affine"},
    {"pairs": "all"},
    {"rows": 40},
    {"parts": "submodules"},
)
RUNS: tuple[dict[str, Any], ...] = ({"dtype": "bfloat16"}, {"batch_tokens": 100})


def test_every_setting_counts(tiny_gpt2, corpus):
    model = load(tiny_gpt2)
    assert not fitted(model, corpus)[1]
    for change in TEXTS:
        assert not fitted(model, Text.read(corpus, **change))[1], change
    for change in FITS:
        assert not fitted(model, corpus, **change)[1], change
    for change in RUNS:
        assert not fitted(model.with_run(**change), corpus)[1], change
    assert len(remembered()) == len(TEXTS) + len(FITS) + len(RUNS) + 1


def test_weights_written_over_in_the_same_place_are_fitted_anew(tiny_gpt2, corpus, tmp_path):
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path / "model"))
    before, _ = fitted(load(folder), corpus)
    stored = load_file(folder / "model.safetensors")
    stored["transformer.h.1.mlp.c_fc.weight"][0] += 1
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    after, known = fitted(load(folder), corpus)
    assert not known and not torch.equal(after["0", "3"], before["0", "3"])


FIRST = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {
        "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}
    },
}


@pytest.mark.parametrize(
    ("file", "entries"),
    [("config.json", {"layer_norm_epsilon": 0.5}), ("tokenizer.json", {"post_processor": FIRST})],
    ids=["config", "start token"],
)
def test_another_config_or_tokenizer_beside_the_same_weights_is_fitted_anew(
    tiny_gpt2, corpus, tmp_path, file: str, entries: dict[str, Any]
):
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path / "model"))
    before, _ = fitted(load(folder), corpus)
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | entries))
    after, known = fitted(load(folder), corpus)
    assert not known and not torch.equal(after["0", "3"], before["0", "3"])


def test_a_copy_of_the_folder_elsewhere_is_known(tiny_gpt2, corpus, tmp_path):
    fitted(load(tiny_gpt2), corpus)
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path / "copy"))
    assert fitted(load(folder), corpus)[1]


def test_other_sentences_and_another_arithmetic_are_fitted_anew(tiny_gpt2, corpus):
    assert not fitted(load(tiny_gpt2), corpus)[1]
    assert not fitted(load(tiny_gpt2), [*corpus.lines[:-1], "another line of text"])[1]
    assert not fitted(load(tiny_gpt2, dtype="float64"), corpus)[1]


def test_another_version_fits_anew(tiny_gpt2, corpus, monkeypatch):
    assert not fitted(load(tiny_gpt2), corpus)[1]
    monkeypatch.setattr(cached, "__version__", "0.0.0")
    assert not fitted(load(tiny_gpt2), corpus)[1]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_fitted_again_and_replaced(tiny_gpt2, corpus, damage: str):
    model = load(tiny_gpt2)
    true, _ = fitted(model, corpus)
    (kept,) = remembered()
    content = bytearray(kept.read_bytes())
    if damage == "flipped":
        content[-5] ^= 1
    kept.write_bytes({"cut": content[:-9], "empty": b"", "other": b"x" * 99}.get(damage, content))
    again, known = fitted(model, corpus)
    assert not known and torch.equal(again["0", "3"], true["0", "3"])
    assert fitted(model, corpus)[1]


def test_forgetting_frees_what_was_kept(tiny_gpt2, corpus):
    fitted(load(tiny_gpt2), corpus)
    size = sum(path.stat().st_size for path in remembered())
    assert forget(remembered()) == size > 0 and remembered() == []
