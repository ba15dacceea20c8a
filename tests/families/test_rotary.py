"""Rotary positions against transformers' own rotation, and the properties a rotation must have."""

import sys
from typing import Any

import pytest
import torch

from embspace.errors import ModelError
from embspace.read.circuits import HeadCircuit
from embspace.read.reader import load
from embspace.weights.rotary import rotate, rotation

ROTARY = [
    "gpt-j",
    "gpt-neox",
    "falcon per group",
    "phi",
    "phi3 longrope",
    "llama",
    "llama linear",
    "llama dynamic",
    "llama 3",
    "llama yarn",
    "qwen3",
    "gemma3",
    "olmo3",
    "stablelm",
    "modernbert",
    "smollm3",
    "cohere2",
    "gpt-oss",
    "glm4",
]
OWN_ROTATION = [n for n in ROTARY if n not in ("gpt-j", "phi", "stablelm", "gpt-neox")]


@pytest.mark.parametrize("name", ROTARY)
@pytest.mark.parametrize("layer", [0, 1])
def test_the_score_depends_on_the_distance_only(saved, name: str, layer: int):
    model = load(saved(name), dtype="float64")
    length = 12
    turn = [rotation(model, layer, n, length=length) for n in range(length)]
    assert torch.allclose(turn[7] @ turn[2].T, turn[9] @ turn[4].T, atol=1e-6)
    assert torch.allclose(turn[3] @ turn[3].T, turn[0] @ turn[0].T, atol=1e-6)


@pytest.mark.parametrize("name", ROTARY)
def test_a_vector_turns_as_the_matrix_says(saved, name: str):
    model = load(saved(name), dtype="float64")
    x = torch.randn(5, model.d_head, dtype=torch.float64)
    at = torch.arange(5)
    matrices = torch.stack([rotation(model, 0, n, length=5) for n in range(5)])
    expected = torch.einsum("nd,nde->ne", x, matrices)
    assert torch.allclose(rotate(x, model, 0, at), expected)


@pytest.mark.parametrize("name", OWN_ROTATION)
@pytest.mark.parametrize("layer", [0, 1])
def test_queries_turn_as_transformers_turns_them(saved, zoo, name: str, layer: int):
    model, live = load(saved(name)), zoo(name)
    x = torch.randn(1, 2, 11, model.d_head)
    ours = rotate(x, model, layer, torch.arange(11))
    assert torch.allclose(ours, _own(live, layer, x), atol=1e-5)


def _own(live: Any, layer: int, x: torch.Tensor) -> torch.Tensor:
    """The live model's rotary module and function applied to heads (1, heads, T, d_h)."""
    base = live.base_model
    home = sys.modules[type(base).__module__]
    kinds = getattr(live.config, "layer_types", None)
    rotary = base.rotary_emb
    if getattr(live.config, "no_rope_layers", [1, 1, 1])[layer] == 0:
        return x
    if live.config.model_type == "cohere2" and kinds[layer] == "full_attention":
        return x
    positions = torch.arange(x.shape[2])[None]
    nested = kinds and kinds[layer] in live.config.rope_parameters
    cos, sin = rotary(x, positions, kinds[layer]) if nested else rotary(x, positions)
    return home.apply_rotary_pos_emb(x, x, cos, sin)[0]


@pytest.mark.parametrize("name", OWN_ROTATION)
@pytest.mark.parametrize("distance", [0, 3])
def test_a_circuit_at_a_distance_is_the_score_of_a_query_that_many_tokens_after_its_key(
    saved, zoo, name: str, distance: int
):
    model, live = load(saved(name)), zoo(name)
    left, right = HeadCircuit(model, 1, 4, "qk", distance=distance).matrices
    attention = model.attention(1)
    turned = [
        _own(live, 1, weight[None, :, None].expand(-1, -1, distance + 1, -1))
        for weight in (attention.W_Q[4], attention.W_K[attention.kv_head(4)])
    ]
    q, k = turned[0][0, :, distance], turned[1][0, :, 0]
    true = q @ k.T
    assert torch.allclose(left @ right.T, true, atol=1e-4 * float(true.abs().max()))


@pytest.mark.parametrize("name", ["smollm3", "cohere2"])
def test_a_layer_without_positions_does_not_turn(saved, name: str):
    model = load(saved(name))
    eye = torch.eye(model.d_head)
    assert torch.equal(rotation(model, 1, 9), eye)
    assert not torch.allclose(rotation(model, 0, 9), eye)


def test_yarn_scales_and_partial_rotation_leaves_the_rest(saved):
    yarn = load(saved("llama yarn"))
    assert float(rotation(yarn, 0, 0)[0, 0]) > 1
    partial = rotation(load(saved("gpt-j")), 0, 5)
    assert torch.equal(partial[4:], torch.eye(8)[4:])


@pytest.mark.parametrize("name", ["gpt2", "opt", "bloom", "falcon alibi", "bert", "mpnet"])
def test_families_without_rotation_say_so(saved, name: str):
    with pytest.raises(ModelError, match="not rotary"):
        rotation(load(saved(name)), 0, 1)
