"""Head circuits equal their definition, computed densely from the checkpoint's own tensors."""

import csv
import io

import pytest
import torch
from safetensors.torch import load_file

import embspace
from embspace.errors import EmbspaceError

LAYER, HEAD, D_H = 1, 2, 8


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


@pytest.fixture(scope="module")
def weights(tiny_gpt2):
    return {k: v.double() for k, v in load_file(tiny_gpt2 / "model.safetensors").items()}


def dense(weights, circuit, *, folded=False):
    """E W E^T by the book: GPT-2 stores (in, out), three slabs, 4 heads of 8."""
    E = weights["transformer.wte.weight"][:300]
    block = f"transformer.h.{LAYER}."
    fused = weights[block + "attn.c_attn.weight"]
    gain = weights[block + "ln_1.weight"] if folded else torch.ones(32).double()
    last = weights["transformer.ln_f.weight"] if folded else torch.ones(32).double()
    at = slice(HEAD * D_H, (HEAD + 1) * D_H)
    q, k, v = (gain[:, None] * fused[:, n * 32 :][:, at] for n in range(3))
    o = weights[block + "attn.c_proj.weight"][at] * last
    return E @ (v @ o if circuit == "vo" else q @ k.T) @ E.T


def strongest(scores, k, sign=1):
    order = (-sign * scores).flatten().argsort(stable=True)[:k]
    return [(int(n) // 300, int(n) % 300, float(scores.flatten()[n])) for n in order]


@pytest.mark.parametrize("circuit", ["vo", "qk"])
@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("norm", ["raw", "folded"])
def test_top_pairs_equal_the_dense_matrix(model, weights, circuit, smallest, norm):
    found = model.heads[LAYER, HEAD].circuit(circuit, norm=norm)
    expected = dense(weights, circuit, folded=norm == "folded")
    pairs = found.top_pairs(40, smallest=smallest).pairs
    for pair, (i, j, score) in zip(
        pairs, strongest(expected, 40, -1 if smallest else 1), strict=True
    ):
        assert (pair.i, pair.j) == (i, j)
        assert pair.score == pytest.approx(score, rel=1e-5)


@pytest.mark.parametrize("circuit", ["vo", "qk"])
def test_rms_is_the_root_mean_square_of_all_scores(model, weights, circuit):
    expected = dense(weights, circuit).square().mean().sqrt()
    assert model.heads[LAYER, HEAD].circuit(circuit).rms == pytest.approx(float(expected), rel=1e-5)


def test_the_pseudo_inverse_reads_through_it_on_the_left_of_vo_and_both_sides_of_qk(model, weights):
    E = weights["transformer.wte.weight"][:300]
    back = torch.linalg.pinv(E)  # d × V
    for circuit in ("vo", "qk"):
        W = torch.linalg.pinv(E) @ dense(weights, circuit) @ torch.linalg.pinv(E).T
        expected = back.T @ W @ (E.T if circuit == "vo" else back)
        pairs = model.heads[LAYER, HEAD].circuit(circuit, inverse="pinv").top_pairs(10).pairs
        scores = [score for _, _, score in strongest(expected, 10)]
        assert [p.score for p in pairs] == pytest.approx(scores, rel=1e-4)


def test_rows_and_columns_are_those_of_the_matrix(model, weights):
    (i,) = [x.ids[0] for x in model.vocabulary.find(" the") if x.single]
    scores = dense(weights, "vo")
    row = model.heads[LAYER, HEAD].vo.row(" the", 5)
    assert [p.j for p in row.pairs] == scores[i].topk(5).indices.tolist()
    column = model.heads[LAYER, HEAD].vo.column(" the", 5)
    assert [p.i for p in column.pairs] == scores[:, i].topk(5).indices.tolist()
    assert {p.j for p in column.pairs} == {i}


def test_filters_and_excluded_pairs_apply_before_the_search(model, weights):
    mask = model.vocabulary.mask("alnum")
    scores = dense(weights, "qk").masked_fill(~(mask[:, None] & mask[None]), -torch.inf)
    scores.fill_diagonal_(-torch.inf)
    pairs = model.heads[LAYER, HEAD].qk.top_pairs(25, filters="alnum", exclude_same=True).pairs
    assert [(p.i, p.j) for p in pairs] == [(i, j) for i, j, _ in strongest(scores, 25)]


def test_pairs_of_one_word_are_left_out_whatever_its_case_and_start(model, weights):
    numbers = model.vocabulary.word_numbers
    same = numbers[:, None] == numbers[None]
    assert int(same.sum()) > len(numbers) + 20
    scores = dense(weights, "vo").masked_fill(same, -torch.inf)
    circuit = model.heads[LAYER, HEAD].vo
    pairs = circuit.top_pairs(40, exclude_same="word").pairs
    assert [(p.i, p.j) for p in pairs] == [(i, j) for i, j, _ in strongest(scores, 40)]
    (i,) = [x.ids[0] for x in model.vocabulary.find(" the") if x.single]
    row = circuit.row(" the", 5, exclude_same="word")
    assert [p.j for p in row.pairs] == scores[i].topk(5).indices.tolist()
    with pytest.raises(EmbspaceError, match="exclude_same"):
        circuit.top_pairs(3, exclude_same="case")  # type: ignore[arg-type]


def test_the_result_is_a_dict_with_ids_scores_and_labels(model):
    result = model.heads[LAYER, HEAD].vo.top_pairs(3)
    first = result.to_dict()["pairs"][0]
    assert set(first) == {"i", "j", "score", "source", "target", "source_text", "target_text"}
    assert first["source"] == model.vocabulary.labels[first["i"]]
    assert first["target_text"] == model.vocabulary.texts[first["j"]]
    assert result.provenance["model_hash"] == model.checkpoint.fingerprint
    header, first, *_ = csv.reader(io.StringIO(result.to_csv()))
    assert header[:8] == ["layer", "head", "circuit", "i", "j", "score", "source", "target"]
    row = dict(zip(header[10:], first[10:], strict=True))
    assert float(row["rms"]) == result.rms and row["model_hash"] == model.checkpoint.fingerprint
    assert (row["norm"], row["filters"]) == ("raw", " ".join(result.settings["filters"]))


def test_a_survey_visits_every_head_once_in_order(model):
    seen = [(r.layer, r.head, r.circuit) for r in model.survey(k=1)]
    assert seen == [(n, h, c) for n in range(3) for h in range(4) for c in ("vo", "qk")]


@pytest.mark.parametrize("at", [(3, 0), (0, 4), (-1, 0), (0, -1)])
def test_a_head_that_does_not_exist_is_refused(model, at):
    with pytest.raises(EmbspaceError, match="does not exist"):
        _ = model.heads[at]


def test_a_distance_is_refused_where_positions_are_learned_or_the_circuit_is_vo(model):
    with pytest.raises(EmbspaceError):
        model.heads[0, 0].circuit("qk", distance=3).top_pairs(1)
    with pytest.raises(EmbspaceError):
        model.heads[0, 0].circuit("vo", distance=3)


def test_rotary_models_say_that_qk_is_at_distance_0_and_learned_positions_do_not(model, tiny_llama):
    assert any("relative distance 0" in note for note in embspace.load(tiny_llama).notes)
    assert not any("distance" in note for note in model.notes)


def test_grouped_query_heads_share_their_key_value_head_in_blocks(tiny_llama):
    """6 query heads on 2 key/value heads repeat 0,0,0,1,1,1."""
    model = embspace.load(tiny_llama)
    stored = load_file(tiny_llama / "model.safetensors")["model.layers.1.self_attn.v_proj.weight"]
    for head, kv in enumerate([0, 0, 0, 1, 1, 1]):
        left, _ = model.heads[1, head].vo.matrices
        assert torch.equal(left, stored[8 * kv : 8 * kv + 8].T)


def test_the_output_embedding_is_read_where_the_head_is_untied(tiny_llama):
    stored = load_file(tiny_llama / "model.safetensors")
    model = embspace.load(tiny_llama)
    assert torch.equal(model.vocabulary.table, stored["lm_head.weight"])
    assert torch.equal(model.embedding("input"), stored["model.embed_tokens.weight"])


def test_double_precision_is_offered_and_agrees(tiny_gpt2, model):
    double = embspace.load(tiny_gpt2, dtype="float64").heads[0, 1].vo.top_pairs(5)
    single = model.heads[0, 1].vo.top_pairs(5)
    assert [p.score for p in double.pairs] == pytest.approx(
        [p.score for p in single.pairs], rel=1e-5
    )
    assert double.provenance["dtype"] == "float64"


def test_a_circuit_says_the_distance_it_is_read_at(tiny_llama):
    def said(circuit, **options):
        return " ".join(
            embspace.load(tiny_llama).heads[0, 0].circuit(circuit, **options).top_pairs(1).notes
        )

    assert "at relative distance 0 " in said("qk")
    assert "at relative distance 3 " in said("qk", distance=3)
    assert "distance 0" not in said("qk", distance=3)
    assert "distance" not in said("vo")
