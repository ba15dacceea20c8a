"""Neurons and sub-heads equal their definition on the checkpoint's own tensors."""

import json
from itertools import product

import pytest
import torch
from safetensors.torch import load_file

import embspace
from embspace.errors import EmbspaceError
from embspace.evidence.matching_pairs import pair_similarity
from embspace.read.related import jaccard
from embspace.read.token import ROLES


@pytest.fixture(scope="module")
def gpt2(tiny_gpt2):
    return embspace.load(tiny_gpt2)


@pytest.fixture(scope="module")
def weights(tiny_gpt2):
    return load_file(tiny_gpt2 / "model.safetensors")


def tokens(vector, weights, k):
    scores = vector.double() @ weights["transformer.wte.weight"][:300].double().T
    return scores.topk(k).indices.tolist(), (-scores).topk(k).indices.tolist()


def test_keys_are_columns_of_the_first_matrix_and_values_rows_of_the_second(gpt2, weights):
    block = "transformer.h.2.mlp."
    for group, vector in (
        (gpt2.ff[2].keys, weights[block + "c_fc.weight"][:, 17]),
        (gpt2.ff[2].values, weights[block + "c_proj.weight"][17]),
    ):
        found = group[17].top_tokens(9)
        top, bottom = tokens(vector, weights, 9)
        assert [t.id for t in found.top] == top
        assert [t.id for t in found.bottom] == bottom
        assert found.norm == pytest.approx(float(vector.norm()), rel=1e-6)


def test_folding_multiplies_the_gains_of_the_norms_that_read_and_write(gpt2, weights):
    from embspace.read.vectors import FeedForwardReading

    folded = FeedForwardReading(gpt2, 1, norm="folded")
    block = "transformer.h.1."
    key = weights[block + "mlp.c_fc.weight"][:, 3] * weights[block + "ln_2.weight"]
    value = weights[block + "mlp.c_proj.weight"][3] * weights["transformer.ln_f.weight"]
    torch.testing.assert_close(folded.up.vectors[3], key)
    torch.testing.assert_close(folded.values.vectors[3], value)


@pytest.mark.parametrize("group", ["q", "k", "v", "o"])
def test_sub_heads_are_columns_of_q_k_v_and_rows_of_o(gpt2, weights, group):
    layer, head, n = 1, 3, 5
    block = f"transformer.h.{layer}.attn."
    if group == "o":
        vector = weights[block + "c_proj.weight"][head * 8 + n]
    else:
        vector = weights[block + "c_attn.weight"][:, "qkv".index(group) * 32 + head * 8 + n]
    assert torch.equal(gpt2.vectors(layer, head, group)[n].vector, vector)


def test_gated_layers_have_two_sets_of_keys_and_say_so(tiny_llama):
    model = embspace.load(tiny_llama)
    stored = load_file(tiny_llama / "model.safetensors")
    assert torch.equal(model.ff[0].gate.vectors, stored["model.layers.0.mlp.gate_proj.weight"])
    assert torch.equal(model.ff[0].up.vectors, stored["model.layers.0.mlp.up_proj.weight"])
    assert torch.equal(model.ff[0].values.vectors, stored["model.layers.0.mlp.down_proj.weight"].T)
    with pytest.raises(EmbspaceError, match="gated"):
        _ = model.ff[0].keys


def test_an_ungated_layer_has_no_gate(gpt2):
    with pytest.raises(EmbspaceError, match="no gate"):
        _ = gpt2.ff[0].gate


@pytest.mark.parametrize(
    "read", ["ff[3]", "ff[-1]", "ff[0, 1]", "ff[0].values[52]", "ff[0].keys[-1]"]
)
def test_what_does_not_exist_is_refused_by_name(gpt2, read):
    with pytest.raises(EmbspaceError, match=r"exist|expert"):
        eval(f"model.{read}", {"model": gpt2})


@pytest.mark.parametrize("absolute", [None, False, True])
def test_related_pairs_are_those_whose_top_tokens_overlap(gpt2, weights, absolute):
    options = {} if absolute is None else {"absolute": absolute}
    found = gpt2.related(1, k=20, overlap=0.1, **options)
    block = "transformer.h.1.mlp."
    E = weights["transformer.wte.weight"][:300].double()
    keys = weights[block + "c_fc.weight"].double().T @ E.T
    values = weights[block + "c_proj.weight"].double() @ E.T
    keys, values = ((x.abs() if absolute else x).topk(20).indices for x in (keys, values))
    expected = {}
    for n, (a, b) in enumerate(zip(keys.tolist(), values.tolist(), strict=True)):
        similarity = len(set(a) & set(b)) / len(set(a) | set(b))
        if similarity >= 0.1:
            expected[n] = similarity
    assert {p.neuron: p.overlap for p in found.pairs} == pytest.approx(expected)
    assert found.share["key"] == pytest.approx(len(expected) / 52)
    assert [p.overlap for p in found.pairs] == sorted(expected.values(), reverse=True)


def test_related_shares_of_the_sample_are_those_of_signed_scores():
    model = embspace.load("sample-gpt2")
    signed = [100 * model.related(layer).share["key"] for layer in range(4)]
    assert signed == pytest.approx([3.1, 17.7, 17.7, 19.8], abs=0.05)
    either = [100 * model.related(layer, absolute=True).share["key"] for layer in range(4)]
    assert either == pytest.approx([2.1, 7.3, 6.25, 17.7], abs=0.05)
    pairs = pair_similarity(model, sample=None).kinds()["key–value"]
    assert [100 * row.share for row in pairs] == pytest.approx(signed)


def test_jaccard_of_a_set_with_itself_is_1_and_with_a_stranger_0():
    a = torch.arange(10)[None]
    assert jaccard(a, a.flip(1)).item() == 1 and jaccard(a, a + 10).item() == 0
    assert jaccard(a, a + 5).item() == pytest.approx(5 / 15)


def test_a_token_reading_finds_the_neuron_and_head_planted_for_it(tiny_gpt2, tmp_path):
    """A value equal to one token's row, and a head that copies it, must come out on top."""
    import shutil

    from safetensors.torch import save_file

    folder = shutil.copytree(tiny_gpt2, tmp_path / "planted")
    weights = load_file(folder / "model.safetensors")
    e = weights["transformer.wte.weight"][260].clone()
    weights["transformer.h.1.mlp.c_proj.weight"][7] = 10 * e
    weights["transformer.h.2.attn.c_attn.weight"][:, 64 + 8] = e
    weights["transformer.h.2.attn.c_proj.weight"][8] = 10 * e
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (reading,) = embspace.load(folder).token("#260", 5)
    first = reading.neurons[0]
    assert (first.layer, first.kind, first.neuron) == (1, "value", 7)
    assert reading.heads[0].layer == 2 and reading.heads[0].head == 1
    assert reading.heads[0].partner == reading.token
    assert reading.token not in [t.label for t in reading.neighbours]


def test_every_head_names_its_strongest_partner_in_each_role_and_a_pair_with_itself_once(gpt2):
    table, i, expected = gpt2.embedding()[:300].double(), 265, set()
    for layer, head, circuit in product(range(3), range(4), ("vo", "qk")):
        left, right = (m.double() for m in gpt2.heads[layer, head].circuit(circuit).matrices)
        scores = (table @ left) @ (table @ right).T
        ends = [int(ends.argmax()) for ends in (scores[i], scores[:, i])]
        expected |= {(layer, head, circuit, way, j) for way, j in enumerate(ends)}
        if ends == [i, i]:
            expected.remove((layer, head, circuit, 1, i))
    assert len(expected) < 48  # at least one head pairs it with itself
    names = {role: key for key, role in ROLES.items()}
    (reading,) = gpt2.token(f"#{i}", 100)
    found = [(u.layer, u.head, *names[u.role], u.partner_id) for u in reading.heads]
    assert len(found) == len(set(found)) and set(found) == expected


def test_json_is_valid_for_tokens_that_are_half_a_character(gpt2):
    text = gpt2.ff[0].values[0].top_tokens(300).to_json()
    assert len(json.loads(text)["top"]) == 300
    text.encode("utf8")


def test_csv_cells_that_a_spreadsheet_would_run_are_made_inert(gpt2):
    result = gpt2.ff[0].values[0].top_tokens(300)
    import csv
    import io

    cells = [row["token"] for row in csv.DictReader(io.StringIO(result.to_csv()))]
    assert len(cells) == 600
    assert not [cell for cell in cells if cell[:1] in "=+-@" and cell]


def test_the_readings_of_a_word_are_one_result_that_tells_its_tokens_apart(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    readings = model.token("#65", 3)
    assert len(readings) == 1 and readings[0] is next(iter(readings))
    assert readings.to_dict() == {"tokens": [readings[0].to_dict()]}
    rows = readings.rows()
    assert {(row["query"], row["query_id"]) for row in rows} == {(readings[0].token, 65)}
    labels = model.vocabulary.labels
    named = [row for row in rows if row["kind"] in ("neighbour", "head")]
    assert len(named) == 6 and all(labels[row["id"]] == row["token"] for row in named)


def test_results_print_as_tables_and_handles_say_what_they_are(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    for result in (model.token("#65", 2), model.heads[0, 1].vo.top_pairs(2)):
        assert len(str(result).splitlines()) > 3 and "\x1b" not in str(result)
        assert "score" in str(result)
    assert repr(model.heads[1, 2]).endswith(", 1, 2)")
    assert "3 layers of 4" in repr(model.heads) and "3 layers" in repr(model.ff)
    assert repr(model.ff[0]).endswith(", 0, norm='raw')")
    assert repr(model.ff[0].values[7]) == "Vector(layer 0 value 7, d=32)"
