"""Numbers that are none, and weights that are not there: told with their place, never used."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import embspace
from embspace.errors import EmbspaceError, ModelError
from embspace.mapping.lensing import lens
from embspace.models.load import load
from embspace.models.passages import Passage
from embspace.models.running import attach, run
from embspace.models.states import StateError, capture_all

BATCH = [Passage((5, 6, 7), (0, 1, 2), 3), Passage(tuple(range(8, 17)), (0, 8), 11)]


def _write_nan(running, layer: int, row: int, place: slice):
    """From now on the block puts NaN into some places of one text of a batch."""

    def hook(module, args, output):
        x = output[0] if isinstance(output, tuple) else output
        x[row, place] = torch.nan

    return running.block(layer).register_forward_hook(hook)


def test_nan_in_padded_rows_changes_no_state_and_no_map(tiny_gpt2):
    """The shorter text is padded with six rows; they are NaN after the last block."""
    running = run(load(tiny_gpt2))
    clean = capture_all(running, BATCH).stacked()
    handle = _write_nan(running, 2, 1, slice(3, None))  # the longer text comes first in its batch
    assert torch.equal(capture_all(running, BATCH).stacked(), clean)
    handle.remove()


@pytest.mark.parametrize(("layer", "row", "line"), [(0, 0, 12), (2, 1, 4)])
def test_nan_in_a_real_row_stops_the_run_and_names_state_and_line(tiny_gpt2, layer, row, line):
    running = run(load(tiny_gpt2))
    handle = _write_nan(running, layer, row, slice(0, 1))
    with pytest.raises(StateError, match=f"state {layer + 1} of line {line} holds NaN"):
        capture_all(running, BATCH)
    handle.remove()


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
    with pytest.raises(StateError, match=r"state 2 of line \d+ .*float16.*--run-dtype float32"):
        capture_all(half, BATCH)
    assert torch.isfinite(capture_all(run(model), BATCH).stacked()).all()
    with pytest.raises(StateError, match="state 2"):
        embspace.fit(model, [f"cat {n}" for n in range(60)], run_dtype="float16")


def test_the_lens_computes_in_float32_whatever_is_stored(overflowing):
    stored = load_file(overflowing / "model.safetensors")
    stored["model.layers.1.mlp.down_proj.weight"] /= 50  # fits into float16 itself
    half = {name: tensor.half() for name, tensor in stored.items()}
    save_file(half, overflowing / "model.safetensors", metadata={"format": "pt"})
    found = lens(load(overflowing), "the cats", "id")
    assert found.provenance["stored_dtype"] == "float16"
    assert all(torch.isfinite(grid.p).all() for grid in found.grids.values())


def test_a_live_model_without_values_is_refused_at_once(tiny_llama):
    model = load(tiny_llama)
    with torch.device("meta"):
        empty = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.from_pretrained(tiny_llama))
    with pytest.raises(ModelError, match="not loaded: some are meta tensors"):
        attach(model, empty)


def test_a_live_model_of_the_callers_own_gets_its_mode_back(tiny_gpt2):
    live = hf.AutoModelForCausalLM.from_pretrained(tiny_gpt2).train()
    live.transformer.h[1].eval()
    running = attach(load(tiny_gpt2), live)
    first, again = (capture_all(running, BATCH).stacked() for _ in range(2))
    assert torch.equal(first, again)  # no dropout
    assert live.training and live.transformer.h[0].training
    assert not live.transformer.h[1].training and not live.transformer.h[1].mlp.training


def test_a_live_model_keeps_no_hook_and_no_gradient(tiny_gpt2):
    running = run(load(tiny_gpt2))
    states = capture_all(running, BATCH, parts=("attn", "ff"))
    assert not states.layers[1].requires_grad
    for module in running.module.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_hooks_are_gone_after_an_error_too(tiny_gpt2):
    running = run(load(tiny_gpt2))
    handle = _write_nan(running, 0, 0, slice(0, 1))
    with pytest.raises(StateError):
        capture_all(running, BATCH)
    handle.remove()
    for module in running.module.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_maps_of_a_model_stored_in_sixteen_bits_are_solved_in_float64_and_say_both(
    tiny_gpt2, tmp_path, dtype: str
):
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path / dtype))
    stored = load_file(folder / "model.safetensors")
    half = {name: tensor.to(getattr(torch, dtype)) for name, tensor in stored.items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    texts = [f"the {chr(65 + n % 26)} cat {n} saw Paris" for n in range(160)]
    maps = embspace.fit(load(folder), texts, positions="all")
    assert maps.about["stored_dtype"] == dtype
    assert (maps.about["dtype"], maps.about["products"]) == ("float32", "float64")
    assert all(matrix.dtype == torch.float32 for matrix in maps.tensors.values())
    assert json.loads(maps.to_json())


def test_devices_that_are_not_offered_are_refused(tiny_gpt2):
    for device in ("mps", "xla", "meta", "cuda:999"):
        with pytest.raises(EmbspaceError):
            embspace.load(tiny_gpt2, device=device)
