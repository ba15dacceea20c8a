"""Sixteen bits on disk and in a forward pass: never in sums and solutions, and no silent NaN."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import embspace
from embspace.errors import EmbspaceError
from embspace.live.capture import StateError, capture_all
from embspace.live.own_text import sampled
from embspace.live.running import run
from embspace.maps.lens import lens
from embspace.read.reader import load
from embspace.text.passages import Passage
from embspace.text.text import Text

BATCH = [Passage((5, 6, 7), (0, 1, 2), 3), Passage(tuple(range(8, 17)), (0, 8), 11)]


@pytest.fixture
def overflowing(tiny_llama: Path, tmp_path: Path) -> Path:
    """A Llama whose second block writes a million times too much: beyond 65504, fine in float32."""
    folder = Path(shutil.copytree(tiny_llama, tmp_path / "large"))
    stored = load_file(folder / "model.safetensors")
    stored["model.layers.1.mlp.down_proj.weight"] *= 1e6
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_states_beyond_sixteen_bits_stop_the_run_with_the_layer_and_the_way_out(overflowing):
    model = load(overflowing)
    half = run(model, dtype=torch.float16)
    with pytest.raises(StateError, match=r"state 2 of line \d+ .*float16.*run_dtype=float32"):
        capture_all(half, BATCH)
    assert torch.isfinite(capture_all(run(model), BATCH).stacked()).all()
    with pytest.raises(StateError, match="state 2"):
        embspace.fit(model.with_run(dtype="float16"), [f"cat {n}" for n in range(60)])


def test_the_lens_computes_in_float32_whatever_is_stored(overflowing):
    stored = load_file(overflowing / "model.safetensors")
    stored["model.layers.1.mlp.down_proj.weight"] /= 50  # fits into float16 itself
    half = {name: tensor.half() for name, tensor in stored.items()}
    save_file(half, overflowing / "model.safetensors", metadata={"format": "pt"})
    found = lens(load(overflowing), "the cats", "id")
    assert found.provenance["stored_dtype"] == "float16"
    assert all(torch.isfinite(grid.p).all() for grid in found.grids.values())


@pytest.mark.parametrize("exit", [{}, {"exit_threshold": 0.9}, {"exit_layer": 1}], ids=str)
def test_no_token_is_generated_from_what_is_not_finite(overflowing, exit):
    """The largest of NaNs would be token 0, which here also ends the text."""
    model = load(overflowing)
    with pytest.raises(StateError, match=r"state 2 of prompt 1 .*float16.*run_dtype=float32"):
        embspace.generate(model.with_run(dtype="float16"), None, "the cats", **exit, repeats=1)
    with pytest.raises(StateError, match=r"state 2 before new token 1 .*float16"):
        half = run(model, dtype=torch.float16)
        lens(model, "the cats", "id", generate=3, running=half)
    found = embspace.generate(model, None, "the cats", **exit, max_new_tokens=3, repeats=1)
    assert len(found.texts[0].ids) > 0


def test_a_prediction_that_overflows_in_the_head_alone_is_no_token(tiny_llama, tmp_path):
    """States are finite, the logits of two tokens are not: both would be infinitely likely."""
    folder = Path(shutil.copytree(tiny_llama, tmp_path / "head"))
    stored = load_file(folder / "model.safetensors")
    stored["lm_head.weight"] *= 3e4 / stored["lm_head.weight"].abs().max()
    stored["model.norm.weight"] *= 1e3
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(StateError, match=r"largest logit of state 2 of prompt 1"):
        embspace.generate(load(folder).with_run(dtype="float16"), None, "the cats", repeats=1)


def test_what_overflows_even_in_float32_is_told_a_way_out_that_is_one(tiny_llama, tmp_path):
    folder = Path(shutil.copytree(tiny_llama, tmp_path / "huge"))
    stored = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    stored[name] *= 3e38 / stored[name].abs().max()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    texts = [f"cat {n}" for n in range(60)]
    with pytest.raises(StateError, match=r"in float32\): .*run in float64 \(run_dtype=float64\)"):
        embspace.fit(load(folder), texts)
    with pytest.raises(StateError, match="last state of sampled text"):
        sampled(load(folder), 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_maps_of_a_model_stored_in_sixteen_bits_are_solved_in_float64_and_say_both(
    tiny_gpt2, tmp_path, dtype: str
):
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path / dtype))
    stored = load_file(folder / "model.safetensors")
    half = {name: tensor.to(getattr(torch, dtype)) for name, tensor in stored.items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    texts = [f"the {chr(65 + n % 26)} cat {n} saw Paris" for n in range(160)]
    maps = embspace.fit(load(folder), Text.read(texts, positions="all"))
    assert maps.about["stored_dtype"] == dtype
    assert (maps.about["dtype"], maps.about["products"]) == ("float32", "float64")
    assert all(matrix.dtype == torch.float32 for matrix in maps.tensors.values())
    assert json.loads(maps.to_json())


def test_devices_that_are_not_offered_are_refused(tiny_gpt2):
    for device in ("mps", "xla", "meta", "cuda:999"):
        with pytest.raises(EmbspaceError):
            embspace.load(tiny_gpt2, device=device)
