"""Sim_k of pairs against sets counted one by one; chance where nothing matches; planted pairs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import embspace
from embspace.errors import EmbspaceError, ModelError
from embspace.evidence.matching_pairs import RELATED, pair_similarity, unmatched

K = 20


def tops(vectors: np.ndarray, table: np.ndarray, *, signed: bool = False) -> list[set[int]]:
    scores = vectors.astype(np.float64) @ table.astype(np.float64).T
    scores = scores if signed else np.abs(scores)
    return [set(row.argsort()[-K:].tolist()) for row in scores]


def jaccards(left: list[set[int]], right: list[set[int]]) -> np.ndarray:
    return np.array([len(a & b) / len(a | b) for a, b in zip(left, right, strict=True)])


def array(x: torch.Tensor) -> np.ndarray:
    return x.double().numpy()


def test_gated_keys_and_grouped_heads_match_their_partners(tiny_llama):
    model = embspace.load(tiny_llama)
    weights = load_file(tiny_llama / "model.safetensors")
    found = {(r.layer, r.kind): r for r in pair_similarity(model, k=K, sample=None).layers}
    assert {kind for _, kind in found} == {"gate–value", "up–value", "W_V–W_O", "W_Q–W_K"}
    table = array(weights["lm_head.weight"])
    for layer in range(2):
        block = {
            name.removeprefix(f"model.layers.{layer}."): array(w)
            for name, w in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        values = tops(block["mlp.down_proj.weight"].T, table)
        for key in ("gate", "up"):
            expected = jaccards(tops(block[f"mlp.{key}_proj.weight"], table), values)
            row = found[layer, f"{key}–value"]
            assert row.matching.mean == pytest.approx(expected.mean())
            vectors = block[f"mlp.{key}_proj.weight"], block["mlp.down_proj.weight"].T
            signed = jaccards(*(tops(x, table, signed=True) for x in vectors))
            assert row.share == pytest.approx((signed >= RELATED).mean())
            assert row.n_pairs == row.matching.n == 44
        # query head h reads key/value head h // 3; column j of one, row (column) j of the other
        rows = {name: block[f"self_attn.{name}_proj.weight"].reshape(-1, 8, 36) for name in "qkv"}
        rows["o"] = block["self_attn.o_proj.weight"].T.reshape(6, 8, 36)
        for kind, shared, own in (("W_V–W_O", "v", "o"), ("W_Q–W_K", "k", "q")):
            expected = [
                jaccards(tops(rows[shared][h // 3], table), tops(rows[own][h], table))
                for h in range(6)
            ]
            assert found[layer, kind].matching.mean == pytest.approx(np.mean(expected))
            assert found[layer, kind].n_pairs == 48


def test_vectors_without_relation_match_by_chance_alone(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    for row in pair_similarity(model, k=K, sample=None).layers:
        if row.kind != "key–value":  # too few of the others to say much
            continue
        assert row.matching.low is not None and row.matching.high is not None
        assert row.shuffled.low is not None and row.shuffled.high is not None
        assert row.matching.low < row.shuffled.high and row.shuffled.low < row.matching.high


@pytest.fixture
def planted(tiny_gpt2: Path, tmp_path: Path) -> Callable[[], Path]:
    """GPT-2 whose values are its keys, and whose W_O is the transpose of its W_V."""
    import shutil

    def make() -> Path:
        folder = tmp_path / "planted"
        shutil.copytree(tiny_gpt2, folder)
        weights = load_file(folder / "model.safetensors")
        for layer in range(3):
            block = f"transformer.h.{layer}."
            keys = weights[block + "mlp.c_fc.weight"]  # (d, d_ff)
            weights[block + "mlp.c_proj.weight"] = -keys.T.contiguous()
            W_V = weights[block + "attn.c_attn.weight"][:, 64:]
            weights[block + "attn.c_proj.weight"] = W_V.T.contiguous()
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


def test_a_planted_relation_is_found_whatever_its_sign(planted):
    rows = pair_similarity(embspace.load(planted()), k=K).layers
    for row in rows:
        if row.kind in ("key–value", "W_V–W_O"):
            assert row.matching.mean == 1.0
            assert row.share == (0.0 if row.kind == "key–value" else 1.0)  # opposite ends
            assert row.shuffled.mean < 0.3
        else:
            assert row.matching.mean < 0.3


def test_a_sample_is_repeatable_and_smaller(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    first, again = (pair_similarity(model, k=K, sample=9, seed=4) for _ in range(2))
    assert first.to_json() == again.to_json()
    assert all(row.matching.n == 9 for row in first.layers)
    assert first.to_json() != pair_similarity(model, k=K, sample=9, seed=5).to_json()


def test_folded_norms_are_refused_where_there_is_no_fold():
    model = embspace.load("sample-bert-a")
    assert pair_similarity(model, sample=10, layers=[0]).layers
    with pytest.raises(EmbspaceError, match="post-norm"):
        pair_similarity(model, sample=10, layers=[0], norm="folded")


@pytest.mark.parametrize("same", [[0, 0, 1, 1, 2, 2], [0, 1, 0, 1], list(range(9))], ids=str)
def test_no_shuffle_keeps_a_partner(same):
    same = torch.tensor(same)
    for seed in range(20):
        order = unmatched(same, torch.Generator().manual_seed(seed))
        assert sorted(order.tolist()) == list(range(len(same)))
        assert not bool((same[order] == same).any())


def test_what_cannot_be_shuffled_is_refused():
    with pytest.raises(ModelError, match="too few"):
        unmatched(torch.tensor([0, 0, 1]), torch.Generator())


def test_settings_that_do_not_apply_are_refused(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    for wrong in ({"k": 0}, {"sample": 0}, {"layers": [3]}, {"norm": "none"}, {"seed": -1}):
        with pytest.raises(EmbspaceError):
            pair_similarity(model, **wrong)
