"""The pair search on real weights against independent float64 reference values."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from embspace.read.pairs import Factor, top_of_rows, top_pairs

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "heads.json"
MODELS = Path(os.environ.get("EMBSPACE_REAL", Path.home() / ".cache" / "embspace-real"))

pytestmark = pytest.mark.slow


def reference(model: str) -> dict[str, list[tuple[int, int, float]]]:
    """The stored lists of a model, or a skip that says what is missing."""
    for needed in (REFERENCE, MODELS / model / "model.safetensors"):
        if not needed.exists():
            pytest.skip(f"real reference: {needed.name} of {model} is not here")
    return json.loads(REFERENCE.read_text())[model]


def weights(model: str, layer: int, head: int, circuit: str) -> tuple[Tensor, Tensor, Tensor]:
    """E, A and B straight from the file, by the family's names: no code of the package."""
    config = json.loads((MODELS / model / "config.json").read_text())
    n_heads = config["num_attention_heads"]
    group = head // (n_heads // config.get("num_key_value_heads", n_heads))
    d_h = config["hidden_size"] // n_heads
    if model == "minilm":
        table = "embeddings.word_embeddings.weight"
        stem = f"encoder.layer.{layer}.attention."
        names = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}
    else:
        table, stem = "model.embed_tokens.weight", f"model.layers.{layer}.self_attn."
        names = {n: f"{n}_proj" for n in "qkvo"}
    mine, shared = (slice(n * d_h, (n + 1) * d_h) for n in (head, group))
    with safe_open(str(MODELS / model / "model.safetensors"), "pt") as file:
        part = {n: file.get_tensor(f"{stem}{name}.weight").float() for n, name in names.items()}
        table = file.get_tensor(table).float()
    if circuit == "qk":
        return table, part["q"][mine].T, part["k"][shared].T
    return table, part["v"][shared].T, part["o"][:, mine]


def assert_matches(found, wanted: list[tuple[int, int, float]]) -> None:
    """The same pairs in the same order; scores to 1e-9, relative."""
    assert len(found) == len(wanted)
    for i, j, score, pair in zip(
        found.i.tolist(), found.j.tolist(), found.score.tolist(), wanted, strict=True
    ):
        assert score == pytest.approx(pair[2], rel=1e-9)
        assert (i, j) == tuple(pair[:2])


@pytest.mark.parametrize("model", ["smollm2", "minilm"])
def test_strongest_pairs_match_the_reference(model: str) -> None:
    for name, wanted in reference(model).items():
        layer, head, circuit = name.split(".")
        table, a, b = weights(model, int(layer), int(head), circuit)
        found = top_pairs(Factor(table, a), Factor(table, b), len(wanted))
        assert_matches(found, wanted)


@pytest.mark.parametrize("model", ["smollm2", "minilm"])
def test_strongest_of_a_row_and_of_a_column_match_the_reference(model: str) -> None:
    for name, wanted in list(reference(model).items())[:4]:
        layer, head, circuit = name.split(".")
        table, a, b = weights(model, int(layer), int(head), circuit)
        i, j, score = wanted[0]
        row = top_of_rows(Factor(table, a), Factor(table, b), [i], 1)[0]
        column = top_of_rows(Factor(table, b), Factor(table, a), [j], 1)[0]
        assert (int(row.j[0]), int(column.j[0])) == (j, i)
        assert float(row.score[0]) == pytest.approx(score, rel=1e-9)
        assert float(column.score[0]) == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize("k", [1, 50])
@pytest.mark.parametrize("options", [{"smallest": True}, {"exclude_same": True}])
def test_options_match_a_dense_product_over_part_of_the_vocabulary(
    k: int, options: dict[str, bool]
) -> None:
    reference("minilm")
    table, a, b = weights("minilm", 2, 7, "qk")
    ids = torch.arange(0, len(table), 9)
    p, q = table[ids].double() @ a.double(), table[ids].double() @ b.double()
    scores = p @ q.T * (-1 if options.get("smallest") else 1)
    if options.get("exclude_same"):
        scores.fill_diagonal_(-float("inf"))
    values, places = scores.flatten().topk(k)
    found = top_pairs(Factor(table, a), Factor(table, b), k, rows=ids, columns=ids, **options)
    assert found.i.tolist() == ids[places // len(ids)].tolist()
    assert found.j.tolist() == ids[places % len(ids)].tolist()
    torch.testing.assert_close(found.score.abs(), values.abs(), rtol=1e-9, atol=0)
