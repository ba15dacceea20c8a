"""The live model with its first blocks only: what a cheap certificate runs."""

import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from embspace.errors import ModelError, ResourceError
from embspace.live.certificate import certify
from embspace.live.running import run, truncated
from embspace.read.reader import load

from .zoo import ZOO


@pytest.mark.parametrize("name", ZOO)
def test_the_first_block_computes_what_it_computes_in_the_whole_model(saved, name: str):
    model = load(saved(name))
    whole, first = run(model), run(model, n_layers=1)
    ids = torch.tensor([[5, 17, 44, 3, 120, 9]])
    states = []
    for running in (whole, first):
        seen: list[torch.Tensor] = []
        handle = running.block(0).register_forward_hook(
            lambda m, a, out, seen=seen: seen.append(out[0] if isinstance(out, tuple) else out)
        )
        with torch.no_grad():
            running.module(input_ids=ids)
        handle.remove()
        states.append(seen[0])
    assert torch.equal(*states)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "gemma3 with vision", "mixtral"])
def test_it_does_not_read_the_other_blocks(saved, tmp_path, name: str):
    """Blocks full of NaN after the first one disturb nothing."""
    folder = saved(name)
    stored = load_file(folder / "model.safetensors")
    for tensor_name, tensor in stored.items():
        if re.search(r"(?<!vision_model\.encoder\.)\b(h|layers?)\.[12]\.", tensor_name):
            tensor.fill_(torch.nan)
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    model = load(tmp_path)
    assert len(list(run(model, n_layers=1).module.parameters())) < len(
        list(run(model).module.parameters())
    )
    assert certify(model, layers="first").passed
    assert not certify(model).passed


def test_lists_of_one_entry_a_block_are_cut_and_the_original_is_left_alone(zoo):
    config = zoo("gemma3").config
    cut = truncated(config, 2)
    assert cut.num_hidden_layers == 2 and len(cut.layer_types) == 2
    assert config.num_hidden_layers == 3 and len(config.layer_types) == 3


def test_a_model_too_large_for_memory_is_refused_before_it_is_loaded(saved, monkeypatch):
    import psutil

    class Little:
        available = 1000

    monkeypatch.setattr(psutil, "virtual_memory", lambda: Little)
    with pytest.raises(ResourceError, match='layers="first"'):
        certify(load(saved("gpt2")))


@pytest.mark.parametrize("layers", ["last", [], [7], [-1]])
def test_layers_that_do_not_exist_are_refused(saved, layers):
    with pytest.raises(ModelError):
        certify(load(saved("gpt2")), layers=layers)


def test_chosen_layers_are_checked_and_no_others(saved, monkeypatch):
    model = load(saved("llama"))
    certificate = certify(model, layers=[1])
    assert certificate.passed and certificate.layers == (1,)
    assert {c.layer for c in certificate.claims if c.what == "attention output"} == {1}
