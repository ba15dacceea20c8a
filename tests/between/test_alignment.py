"""Layers are matched as a dense computation over the whole vocabulary matches them."""

import json

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import embspace
from embspace.between import layer_scores
from embspace.between.alignment import align
from embspace.between.layer_vectors import pieces
from embspace.errors import EmbspaceError, ModelError


@pytest.fixture(scope="module")
def models(tiny_gpt2, altered):
    """A GPT-2 and a relative of it: its layers in another order, turned, and with noise."""

    def change(model):
        torch.manual_seed(1)
        turn = torch.linalg.qr(torch.randn(32, 32))[0]
        model.transformer.wte.weight.copy_(model.transformer.wte.weight @ turn)
        blocks = list(model.transformer.h)
        for block in blocks:
            for layer in (block.attn.c_attn, block.mlp.c_fc):
                layer.weight.copy_(turn.T @ layer.weight)
            for layer in (block.attn.c_proj, block.mlp.c_proj):
                layer.weight.copy_(layer.weight @ turn)
        with torch.no_grad():
            model.transformer.h = torch.nn.ModuleList(blocks[n] for n in (1, 2, 0))

    return embspace.load(tiny_gpt2), embspace.load(altered(tiny_gpt2, change))


def layers(model, group):
    """Every layer's vectors in float64, from all pieces."""
    found = {}
    for piece in pieces(model, group):
        found.setdefault(piece.layer, []).append(piece.read().double())
    return [torch.cat(parts) for parts in found.values()]


def dense(one, other):
    """Mean |corrcoef| of two sets of rows."""
    both = np.corrcoef(np.concatenate([one, other]))
    return np.abs(both[: len(one), len(one) :]).mean()


def dense_scores(a, b, group, ids_a, ids_b):
    """L_a × L_b, through V."""
    E_a, E_b = a.vocabulary.table[ids_a].double().T, b.vocabulary.table[ids_b].double().T
    return np.array(
        [
            [dense((x @ E_a).numpy(), (y @ E_b).numpy()) for y in layers(b, group)]
            for x in layers(a, group)
        ]
    )


def test_scores_are_those_of_the_dense_projections(models):
    a, b = models
    result = align(a, b)
    ids = torch.arange(300)
    assert list(result.groups) == ["K", "V", "W_Q", "W_K", "W_V", "W_O"]
    for name, group in result.groups.items():
        expected = dense_scores(a, b, name, ids, ids)
        np.testing.assert_allclose(group.vocabulary.score, expected, atol=2e-6)
        best = linear_sum_assignment(expected, maximize=True)[1]
        assert list(group.vocabulary.match) == best.tolist()


def test_feature_scores_are_those_over_coordinates(models):
    a, b = models
    for name, group in align(a, b).groups.items():
        expected = [[dense(x, y) for y in layers(b, name)] for x in layers(a, name)]
        np.testing.assert_allclose(group.feature.score, expected, atol=2e-6)


def test_layers_moved_and_turned_are_found_in_vocabulary_space(models):
    a, b = models
    result = align(a, b)
    for group in result.groups.values():
        assert group.vocabulary.match == (2, 0, 1)
        assert group.vocabulary.diagonal == 0.0
        assert group.vocabulary.distance == pytest.approx(4 / 3)
        assert group.vocabulary.p == 1.0


def test_a_model_is_matched_with_itself_in_both_spaces(models):
    a, _ = models
    for group in align(a, a).groups.values():
        for found in group.spaces().values():
            assert found.match == (0, 1, 2) and found.diagonal == 1.0
            assert found.distance == 0.0 and found.p == pytest.approx(1 / 6)


def test_depth_width_and_gates_may_differ(tiny_gpt2, tiny_llama):
    a, b = embspace.load(tiny_gpt2), embspace.load(tiny_llama)
    result = align(a, b)
    assert list(result.groups) == ["V", "W_Q", "W_K", "W_V", "W_O"]
    ids = torch.arange(300)
    for name, group in result.groups.items():
        assert group.feature is None
        expected = dense_scores(a, b, name, ids, ids)
        np.testing.assert_allclose(group.vocabulary.score, expected, atol=2e-6)
        assert sum(layer is not None for layer in group.vocabulary.match) == 2
    assert any("widths differ (32 and 36)" in note for note in result.notes)
    assert any("gate and up" in note for note in result.notes)


def test_either_model_may_come_first(tiny_gpt2, tiny_llama):
    a, b = embspace.load(tiny_gpt2), embspace.load(tiny_llama)
    forth, back = align(a, b), align(b, a)
    for name, group in forth.groups.items():
        score = np.array(back.groups[name].vocabulary.score)
        np.testing.assert_allclose(group.vocabulary.score, score.T, atol=2e-6)
        pairs = {(j, i) for i, j in back.groups[name].vocabulary.pairs}
        assert set(group.vocabulary.pairs) == pairs


def test_filters_restrict_the_tokens(models):
    a, b = models
    result = align(a, b, groups="V", filters="ascii")
    ids = a.vocabulary.mask("ascii").nonzero()[:, 0]
    assert result.coverage["shared"] == len(ids) < 300
    expected = dense_scores(a, b, "V", ids, ids)
    np.testing.assert_allclose(result.groups["V"].vocabulary.score, expected, atol=2e-6)


def test_fewer_tokens_than_coordinates_are_said_and_still_exact(models):
    a, b = models
    result = align(a, b, groups="V", filters=r"re:^[a-z]$")
    ids = a.vocabulary.mask(r"re:^[a-z]$").nonzero()[:, 0]
    assert len(ids) < 32 and any("say little" in note for note in result.notes)
    expected = dense_scores(a, b, "V", ids, ids)
    np.testing.assert_allclose(result.groups["V"].vocabulary.score, expected, atol=2e-6)


def test_slabs_and_tiles_change_nothing(models, monkeypatch):
    a, b = models
    expected = align(a, b).to_dict()["groups"]
    monkeypatch.setattr(layer_scores, "HELD", 1)
    monkeypatch.setattr(layer_scores, "TILE", 100)
    found = align(a, b).to_dict()["groups"]
    for name, group in expected.items():
        for space, each in group.items():
            score = found[name][space]["score"]
            np.testing.assert_allclose(score, each["score"], rtol=1e-6)
            assert found[name][space]["match"] == each["match"]


def test_a_dead_layer_is_named_and_the_rest_is_matched(tiny_gpt2, altered):
    def change(model):
        model.transformer.h[1].mlp.c_proj.weight.zero_()

    a, b = embspace.load(tiny_gpt2), embspace.load(altered(tiny_gpt2, change))
    result = align(a, b, groups=["V", "K"])
    found = result.groups["V"].vocabulary
    assert found.match == (0, None, 2) and found.diagonal == 1.0
    assert list(found.unmatched_b) == [1] and found.unmatched_a == {}
    assert [row[1] for row in found.score] == [None] * 3
    assert result.groups["K"].vocabulary.match == (0, 1, 2)
    assert any("V in vocabulary space: layer 1" in note for note in result.notes)
    json.loads(result.to_json())


def test_a_layer_with_nan_is_named_and_the_rest_is_matched(tiny_gpt2, altered):
    def change(model):
        model.transformer.h[2].mlp.c_fc.weight[3, 5] = torch.nan

    a, b = embspace.load(altered(tiny_gpt2, change)), embspace.load(tiny_gpt2)
    for found in align(a, b, groups="K").groups["K"].spaces().values():
        assert found.match == (0, 1, None)
        assert found.unmatched_a == {2: "holds NaN or infinity"}


def test_vectors_that_are_constant_in_feature_space_only_are_left_out_there(tiny_gpt2, altered):
    def change(model):
        model.transformer.h[0].mlp.c_proj.weight[:10] = 0.25  # ten values with equal coordinates
        model.transformer.h[1].mlp.c_proj.weight[:] = 0.5

    a, b = embspace.load(tiny_gpt2), embspace.load(altered(tiny_gpt2, change))
    group = align(a, b, groups="V").groups["V"]
    assert group.vocabulary.unmatched_b == {}
    assert group.feature.match == (0, None, 2) and list(group.feature.unmatched_b) == [1]
    rest = layers(b, "V")[0][10:]
    expected = [dense(x, rest) for x in layers(a, "V")]
    np.testing.assert_allclose([row[0] for row in group.feature.score], expected, atol=2e-6)


def test_two_models_of_dead_layers_have_no_match_and_do_not_crash(tiny_gpt2, altered):
    def change(model):
        for block in model.transformer.h:
            block.mlp.c_proj.weight.zero_()

    dead = embspace.load(altered(tiny_gpt2, change))
    found = align(dead, dead, groups="V").groups["V"].vocabulary
    assert found.match == (None, None, None)
    assert (found.diagonal, found.distance, found.p) == (None, None, None)


def test_gated_layers_have_gate_and_up_apart(tiny_llama):
    model = embspace.load(tiny_llama)
    assert list(align(model, model, groups="K").groups) == ["K_gate", "K_up"]
    assert list(align(model, model).groups)[:3] == ["K_gate", "K_up", "V"]


@pytest.mark.parametrize("groups", ["K", "K_gate", "W_X", []])
def test_groups_that_cannot_be_compared_are_refused(tiny_gpt2, tiny_llama, groups):
    a, b = embspace.load(tiny_gpt2), embspace.load(tiny_llama)
    with pytest.raises(EmbspaceError, match=r"group|gate"):
        align(a, b, groups=groups)


def test_folded_norms_multiply_the_gains_in(models):
    a, _ = models
    result = align(a, a, groups="K", norm="folded")
    E = a.vocabulary.table.double().T
    gains = [a.reading_gain(layer, "ff").double() for layer in range(3)]
    folded = [(x * gain) @ E for x, gain in zip(layers(a, "K"), gains, strict=True)]
    expected = [[dense(x, y) for y in folded] for x in folded]
    np.testing.assert_allclose(result.groups["K"].vocabulary.score, expected, atol=2e-6)


def test_post_norm_models_have_nothing_to_fold():
    a, b = embspace.load("sample-bert-a"), embspace.load("sample-bert-b")
    with pytest.raises(ModelError, match="post-norm"):
        align(a, b, norm="folded")


def test_a_mixture_is_compared_by_all_its_experts_together(save_model):
    from transformers import MixtralConfig

    config = MixtralConfig(
        **{"vocab_size": 300, "hidden_size": 32, "intermediate_size": 20, "head_dim": 8},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"num_local_experts": 3, "initializer_range": 0.5},
    )
    model = embspace.load(save_model(config))
    assert len(layers(model, "V")[0]) == 60
    result = align(model, model, groups=["V", "K_gate"])
    ids = torch.arange(300)
    for name, group in result.groups.items():
        expected = dense_scores(model, model, name, ids, ids)
        np.testing.assert_allclose(group.vocabulary.score, expected, atol=2e-6)


def test_steps_are_counted_and_results_repeat(models):
    a, b = models
    seen = []

    def watch(steps, total):
        seen.append(total)
        for n, step in enumerate(steps):
            yield step
            seen[1:] = [n + 1]

    first = align(a, b, watch=watch)
    assert seen == [6 * 2 * 9, 6 * 2 * 9]
    assert first.to_json() == align(a, b).to_json()


def test_the_dict_has_the_documented_shape(models):
    a, b = models
    result = align(a, b, seed=3)
    found = result.to_dict()
    assert set(found["groups"]) == {"K", "V", "W_Q", "W_K", "W_V", "W_O"}
    assert {"match", "score", "diagonal", "p"} <= set(found["groups"]["K"]["vocabulary"])
    assert set(found["groups"]["K"]) == {"vocabulary", "feature"}
    assert found["settings"]["seed"] == 3
    assert found["provenance"] == {"a": a.provenance, "b": b.provenance}
    assert len(result.rows()) == 6 * 2 * 9
    assert sum(row["matched"] for row in result.rows()) == 6 * 2 * 3


def test_what_is_no_model_is_refused(models):
    with pytest.raises(EmbspaceError, match=r"embspace\.load"):
        align(models[0], "gpt2")


def test_two_devices_or_dtypes_are_refused(tiny_gpt2):
    one, other = embspace.load(tiny_gpt2), embspace.load(tiny_gpt2, dtype="float64")
    with pytest.raises(EmbspaceError, match="one dtype"):
        align(one, other)


def test_layers_that_share_one_block_have_no_p(save_model):
    from transformers import AlbertConfig

    config = AlbertConfig(
        vocab_size=300,
        embedding_size=16,
        hidden_size=16,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=64,
        initializer_range=0.2,  # so that tokens are seen to look at later ones
    )
    folders = [save_model(config, "AutoModelForMaskedLM") for _ in range(2)]
    found = align(*map(embspace.load, folders))
    for name, group in found.groups.items():
        for match in group.spaces().values():
            assert match.p is None and match.diagonal is None, name
    assert sum("every match is equally good" in note for note in found.notes) == sum(
        len(group.spaces()) for group in found.groups.values()
    )


def test_two_equal_layers_are_not_told_apart(tiny_gpt2, altered):
    def change(model):
        model.transformer.h[1].load_state_dict(model.transformer.h[0].state_dict())

    a = embspace.load(altered(tiny_gpt2, change))
    for group in align(a, a).groups.values():
        for match in group.spaces().values():
            assert match.equally_good == 2
            assert match.p == pytest.approx((1 / 6 + 3 / 6) / 2)
