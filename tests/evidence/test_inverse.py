"""The inverse check against dense float64, and where the answer is known: k = V, orthonormal E."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import embspace
from embspace.errors import EmbspaceError
from embspace.evidence.inverse_check import inverse_check


def kept(scores: np.ndarray, k: int) -> np.ndarray:
    """All but the k largest |entries| of each row zeroed, one row at a time."""
    out = np.zeros_like(scores)
    for row, copy in zip(scores, out, strict=True):
        for at in sorted(range(len(row)), key=lambda i: (-abs(row[i]), i))[:k]:
            copy[at] = row[at]
    return out


def test_every_point_is_that_of_dense_matrices(tiny_llama):
    model = embspace.load(tiny_llama, dtype="float64")
    states = torch.randn(12, 36, generator=torch.Generator().manual_seed(3))
    found = inverse_check(model, n=12, kept=[5, 40, 1000], states=states, seed=1)
    assert found.settings["kept"] == [5, 40, 300]  # V = 300
    E = load_file(tiny_llama / "model.safetensors")["lm_head.weight"].double().numpy().T
    x = states.double().numpy()  # all twelve are taken: their order changes no cosine
    true = (x @ x.T).ravel()
    for k in (5, 40, 300):
        for inverse, back in (("transpose", E.T), ("pinv", np.linalg.pinv(E))):
            copy = (kept(x @ E, k) @ kept(x @ back.T, k).T).ravel()
            expected = true @ copy / np.linalg.norm(true) / np.linalg.norm(copy)
            assert found.cosine("states", inverse, k) == pytest.approx(expected, abs=1e-9)


def test_the_pseudo_inverse_is_exact_when_all_is_kept(tiny_gpt2):
    found = inverse_check(embspace.load(tiny_gpt2, dtype="float64"), n=20)
    for vectors in ("normal", "values"):
        assert found.cosine(vectors, "pinv", 300) == pytest.approx(1, abs=1e-9)
        assert found.cosine(vectors, "transpose", 300) < 0.999


def test_orthonormal_rows_make_both_inverses_one(tiny_gpt2, tmp_path):
    folder = tmp_path / "orthonormal"
    shutil.copytree(tiny_gpt2, folder)
    weights = load_file(folder / "model.safetensors")
    basis = torch.linalg.qr(torch.randn(300, 32, dtype=torch.float64)).Q
    weights["transformer.wte.weight"] = torch.cat([basis, torch.zeros(4, 32)]).float()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    found = inverse_check(embspace.load(folder), n=10, kept=[10, 300])
    for vectors in ("normal", "values"):
        for k in (10, 300):
            both = [found.cosine(vectors, inverse, k) for inverse in ("transpose", "pinv")]
            assert both[0] == pytest.approx(both[1], abs=1e-5)
        assert found.cosine(vectors, "transpose", 300) == pytest.approx(1, abs=1e-6)


def test_values_are_drawn_from_every_layer(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    found = inverse_check(model, n=8)
    assert found.settings["n"] == {"normal": 8, "values": 8}
    assert [point.vectors for point in found.points].count("states") == 0


def test_a_few_long_vectors_are_told(tiny_gpt2):
    states = torch.randn(10, 32, generator=torch.Generator().manual_seed(0))
    states[0] *= 500
    found = inverse_check(embspace.load(tiny_gpt2), n=10, states=states)
    assert any("states" in note and "few vectors own" in note for note in found.notes)


def test_settings_that_do_not_apply_are_refused(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    for wrong in ({"n": 0}, {"kept": [0]}, {"states": torch.empty(0, 32)}, {"seed": -1}):
        with pytest.raises(EmbspaceError):
            inverse_check(model, **wrong)
    with pytest.raises(EmbspaceError, match="not measured"):
        inverse_check(model, n=4).cosine("states", "pinv", 10)
