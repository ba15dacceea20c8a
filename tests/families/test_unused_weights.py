"""Weights that a file holds and transformers leaves unused: it runs another model than was trained.

A few are harmless leftovers of older versions (masks, position ids); see test_options.py.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from embspace.errors import ModelError
from embspace.live.certificate import require
from embspace.read.reader import load


@pytest.fixture
def with_extra(saved, tmp_path: Path) -> Callable[..., Path]:
    """A model of the zoo with more tensors in its file, and other settings."""

    def make(name: str, extra: dict[str, Tensor], strip: str = "", **settings: object) -> Path:
        stored = load_file(saved(name) / "model.safetensors") | extra
        stored = {key.removeprefix(strip): tensor for key, tensor in stored.items()}
        save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((saved(name) / "config.json").read_text()) | settings
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return make


def test_relative_positions_that_transformers_gave_up_are_refused(with_extra):
    """BERT with position_embedding_type relative_key loads without a word, and computes without."""
    block = "bert.encoder.layer.{}.attention.self.distance_embedding.weight"
    extra = {block.format(l): torch.randn(127, 8) for l in range(3)}
    folder = with_extra("bert", extra, position_embedding_type="relative_key")
    with pytest.raises(ModelError, match=r"distance_embedding\.weight, for which .* has no place"):
        require(load(folder))


@pytest.mark.parametrize("strip", ["", "transformer."])
def test_an_adapter_that_was_never_merged_is_refused(with_extra, strip: str):
    extra = {"transformer.h.0.attn.c_attn.lora_A.weight": torch.randn(4, 48)}
    with pytest.raises(ModelError, match=r"lora_A\.weight, for which transformers' gpt2 has no"):
        require(load(with_extra("gpt2", extra, strip)))


@pytest.mark.parametrize("name", ["self_attn.q_proj.bias", "self_attn.o_proj.bias"])
def test_biases_that_the_config_does_not_name_are_refused(with_extra, name: str):
    extra = {f"model.layers.{l}.{name}": torch.randn(48) for l in range(3)}
    with pytest.raises(ModelError, match=rf"layers\.0\.{name}, for which transformers' llama"):
        require(load(with_extra("llama tied", extra)))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("self_attn.q_proj.bias", torch.randn(48)), ("self_attn.q_norm.weight", torch.randn(8))],
    ids=["bias", "norm"],
)
def test_what_only_a_later_block_has_is_refused_though_the_first_one_is_right(
    with_extra, name: str, tensor: Tensor
):
    """A certificate of the first block alone would not see it."""
    folder = with_extra("llama tied", {f"model.layers.2.{name}": tensor})
    with pytest.raises(ModelError, match=f"layer 2 has {name}, but layer 0 has not"):
        load(folder)


def test_parts_beside_the_blocks_are_left_alone(with_extra):
    """Heads of other tasks, poolers: they change no state."""
    extra = {
        "bert.pooler.dense.weight": torch.randn(48, 48),
        "cls.seq_relationship.weight": torch.randn(2, 48),
    }
    require(load(with_extra("bert", extra)))
