"""A certificate that a wrong reading passes proves nothing: each of these must fail, and where."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from embspace.errors import CertificateError
from embspace.live import findings
from embspace.live import rebuilt as replay
from embspace.live.certificate import certify, require
from embspace.read.reader import load
from embspace.weights import scales
from embspace.weights.attention import Attention
from embspace.weights.model import Model
from embspace.weights.registry import BY_TYPE

WRONG_ENTRIES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "gate and up swapped": (
        "llama",
        {"gate": "mlp.up_proj", "up": "mlp.gate_proj"},
        {findings.FEED_FORWARD},
    ),
    "slabs where NeoX keeps heads together": (
        "gpt-neox",
        {"fused": "slabs"},
        {findings.QKV, findings.PATTERN, findings.ATTENTION},
    ),
    "slabs where BLOOM keeps heads together": (
        "bloom",
        {"fused": "slabs"},
        {findings.QKV, findings.PATTERN, findings.ATTENTION},
    ),
    "slabs where Falcon keeps groups together": (
        "falcon per group",
        {"fused": "slabs"},
        {findings.QKV, findings.PATTERN, findings.ATTENTION},
    ),
    "groups where GPT-2 has slabs": (
        "gpt2",
        {"fused": "groups"},
        {findings.QKV, findings.PATTERN, findings.ATTENTION},
    ),
    "scores divided where GPT-Neo does not": (
        "gpt-neo",
        {"scores_unscaled": False},
        {findings.PATTERN},
    ),
    "halves turned where GPT-J turns neighbours": (
        "gpt-j",
        {"interleaved": False},
        {findings.QKV, findings.PATTERN},
    ),
    "another rotary base": ("gpt-j", {"fixed_base": 9000.0}, {findings.QKV, findings.PATTERN}),
    "rotation left out": ("llama", {"positions": "learned"}, {findings.QKV, findings.PATTERN}),
    "query and key norms left out": (
        "qwen3",
        {"q_norm": None, "k_norm": None},
        {findings.QKV, findings.PATTERN},
    ),
    "Gemma's gain read without the 1": (
        "gemma",
        {"gain_offset": 0.0},
        {findings.READING, findings.FINAL, findings.LOGITS},
    ),
    "LayerNorm where the model has RMSNorm": (
        "llama",
        {"norm": "layer"},
        {findings.READING, findings.FINAL, findings.LOGITS},
    ),
    "post-norms left out": (
        "gemma2",
        {"attn_post": None, "ff_post": None},
        {findings.RESIDUAL, findings.READING},  # the next norm then reads another stream
    ),
    "embedding not scaled": ("gemma2", {"embedding_scaled": False}, {findings.EMBEDDING}),
    "score cap left out": ("gemma2", {"caps_scores": False}, {findings.PATTERN}),
    "another norm for the feed-forward keys": (
        "gpt-neox sequential",
        {"ff_norm": "input_layernorm"},
        {findings.READING},
    ),
    "the exact GELU for BLOOM's approximation": (
        "bloom",
        {"activation": "gelu"},
        {findings.FEED_FORWARD},
    ),
    "head bias left out": ("phi", {"head_bias": "none"}, {findings.LOGITS, findings.FINAL}),
    "head transform left out": ("distilbert", {"transform": None}, {findings.LOGITS}),
    "a norm of attention that no block calls": (
        "llama",
        {"attn_norm": "no_such"},
        {findings.READING},
    ),
    "a norm of the feed-forward layer that no block calls": (
        "gpt2",
        {"ff_norm": "no_such"},
        {findings.READING},
    ),
    "a norm before attention left out": ("llama", {"attn_norm": None}, {findings.READING}),
    "a norm before the feed-forward layer left out": (
        "opt",
        {"ff_norm": None},
        {findings.READING},
    ),
    "a final norm that the model has not": (
        "llama",
        {"final_norm": "no_such"},
        {findings.FINAL, findings.LOGITS},
    ),
    "a final norm left out": ("gpt-neox", {"final_norm": None}, {findings.LOGITS}),
    "a masked model where the blocks look one way": (
        "gpt2",
        {"causal": False},
        {findings.DIRECTION, findings.LOGITS},
    ),
    "a decoder where the blocks look both ways": (
        "bert",
        {"causal": True},
        {findings.DIRECTION},
    ),
    "halves where gpt-oss alternates gate and up": (
        "gpt-oss",
        {"activation": "silu"},
        {findings.FEED_FORWARD},
    ),
}


@pytest.mark.parametrize("wrong", WRONG_ENTRIES)
def test_a_wrong_family_entry_fails_where_it_is_wrong(saved, wrong: str):
    name, changes, failing = WRONG_ENTRIES[wrong]
    folder = saved(name)
    right = BY_TYPE[load(folder).config.model_type]
    adapted = {**right.adapt(load(folder).config), **changes}
    family = replace(right, **{**changes, "adapt": lambda config: adapted})
    _fails_exactly(load(folder, family=family), failing)


def _tiled(attention: Attention, head: int) -> int:
    return head % attention.model.n_kv_heads


def _transposed(attention: Attention) -> torch.Tensor:
    sizes = attention.model.layout
    weight, _ = attention.model.linear(
        attention.model.layout.block(attention.layer) + attention.model.family.o
    )
    return weight.reshape(sizes.n_heads, sizes.d_head, sizes.d)


CHANGES: dict[str, tuple[str, Any, str, Any, set[str]]] = {
    "key/value heads tiled": (
        "qwen2",
        Attention,
        "kv_head",
        _tiled,
        {findings.PATTERN, findings.ATTENTION},
    ),
    "W_O transposed": ("gpt2", Attention, "W_O", property(_transposed), {findings.ATTENTION}),
    "logit cap left out": (
        "gemma2",
        scales,
        "logit_cap",
        lambda model: None,
        {findings.LOGITS, findings.FINAL},
    ),
    "logit scale left out": (
        "granite",
        scales,
        "logit_scale",
        lambda model: 1.0,
        {findings.LOGITS, findings.FINAL},
    ),
    "residual multiplier left out": (
        "granite",
        scales,
        "residual_scale",
        lambda model: 1.0,
        {findings.RESIDUAL, findings.READING},
    ),
    "score scale of 1 / √d_h": (
        "granite",
        scales,
        "score_scale",
        lambda model, layer: model.d_head**-0.5,
        {findings.QKV, findings.PATTERN},
    ),
    "layer index left out of the scale": (
        "gpt2 scaled by layer",
        scales,
        "score_scale",
        lambda model, layer: model.d_head**-0.5,
        {findings.QKV, findings.PATTERN},
    ),
    "output bias left out": (
        "gpt2",
        Attention,
        "b_O",
        property(lambda attention: None),
        {findings.ATTENTION},
    ),
    "shared expert left out": (
        "qwen2-moe",
        replay,
        "shared",
        lambda model, layer, x: torch.zeros_like(x),
        {findings.FEED_FORWARD},
    ),
    "final gain left out": (
        "olmo2",
        Model,
        "final_gain",
        lambda model: None,
        {findings.LOGITS, findings.FINAL},
    ),
}


@pytest.mark.parametrize("wrong", CHANGES)
def test_wrong_arithmetic_fails_where_it_is_wrong(saved, monkeypatch, wrong: str):
    name, owner, attribute, change, failing = CHANGES[wrong]
    monkeypatch.setattr(owner, attribute, change)
    _fails_exactly(load(saved(name)), failing)


def _fails_exactly(model: Model, failing: set[str]) -> None:
    certificate = certify(model)
    assert not certificate.passed
    assert {row.what for row in certificate.failures} == failing
    for row in certificate.failures:
        if row.error is None:
            assert row.note, row
        else:
            assert row.error > 5 * row.tolerance, row


def test_one_wrong_weight_of_one_expert_fails(saved, monkeypatch):
    """Every expert is compared, also those that no random text was routed to."""
    model = load(saved("mixtral"))
    read: Callable[..., Any] = Model.feed_forward

    def spoiled(self: Model, layer: int, expert: Any = None) -> Any:
        ff = read(self, layer, expert)
        return replace(ff, values=ff.values.flip(0)) if (layer, expert) == (2, 4) else ff

    monkeypatch.setattr(Model, "feed_forward", spoiled)
    certificate = certify(model)
    (row,) = certificate.failures
    assert (row.what, row.layer) == (findings.FEED_FORWARD, 2)


def test_require_names_the_failing_claim_and_remembers_only_success(saved, monkeypatch, tmp_path):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path))
    folder = saved("llama")
    wrong = replace(BY_TYPE["llama"], gate="mlp.up_proj", up="mlp.gate_proj")
    with pytest.raises(CertificateError, match=r"feed-forward output: off by \d.*at layer 0"):
        require(load(folder, family=wrong))
    assert not list(tmp_path.rglob("*.json"))
    require(load(folder))
    (remembered,) = tmp_path.rglob("*.json")
    monkeypatch.setattr("embspace.live.certificate.check", lambda *a, **k: pytest.fail("measured"))
    require(load(folder))
    remembered.write_text("{damaged")
    with pytest.raises(pytest.fail.Exception):
        require(load(folder))
