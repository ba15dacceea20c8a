"""Readings through sides equal dense float64 scores of rows that the live model itself gives."""

import pytest
import torch
import transformers as hf

import embspace
from embspace.errors import EmbspaceError
from embspace.read.common_tokens import common_tokens, trained_tokens
from embspace.read.reading import Reading
from embspace.read.state_table import make_state_tables, size_of_tables, state_table
from embspace.weights.vocabulary import VocabularySpace

LAYER, HEAD, V = 1, 3, 300
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": V,
    "initializer_range": 0.5,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GEMMA = {**SIZES, "num_key_value_heads": 2, "head_dim": 10, "layer_types": ["full_attention"] * 2}
CONFIGS = {
    "gpt2": hf.GPT2Config(
        vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_inner=44, initializer_range=0.5
    ),
    "llama": hf.LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=True),
    "untied": hf.LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=False),
    "gemma2": hf.Gemma2Config(**GEMMA, query_pre_attn_scalar=7),
    "gemma3": hf.Gemma3TextConfig(**GEMMA, query_pre_attn_scalar=7),
    "bert": hf.BertConfig(**SIZES),
}
CAUSAL = [name for name in CONFIGS if name != "bert"]


@pytest.fixture(scope="module", params=CONFIGS)
def both(request, save_model):
    """The readable model and the live one, in float64."""
    auto = "AutoModelForMaskedLM" if request.param == "bert" else "AutoModelForCausalLM"
    folder = save_model(CONFIGS[request.param], auto)
    live = getattr(hf, auto).from_pretrained(folder, dtype=torch.float64).eval()
    return embspace.load(folder, dtype="float64"), live.requires_grad_(False)


def first_mlp(live):
    """MLP_0(norm(e_in)) by the live model's own modules."""
    base = live.base_model
    ids = torch.arange(V)
    kind = live.config.model_type
    if kind == "gpt2":
        return base.h[0].mlp(base.h[0].ln_2(base.wte(ids)))
    if kind == "bert":
        block, inside = base.encoder.layer[0], base.embeddings
        x = block.attention.output.LayerNorm(inside.LayerNorm(inside.word_embeddings(ids)))
        return block.output.dense(block.intermediate(x))
    block, x = base.layers[0], base.embed_tokens(ids)
    if kind == "llama":
        return block.mlp(block.post_attention_layernorm(x))
    return block.post_feedforward_layernorm(block.mlp(block.pre_feedforward_layernorm(x)))


def tables(model, live):
    """Source tables by name, as the live model has them."""
    return {
        "embedding": live.get_output_embeddings().weight[:V],
        "input-embedding": live.get_input_embeddings().weight[:V],
        "first-mlp": first_mlp(live),
    }


def turned(rows, among, centre, unit):
    rows = rows - rows[among].mean(0) if centre else rows
    lengths = rows.norm(dim=1, keepdim=True)  # a row of zeros (padding) stays one
    return rows / lengths.clamp_min(1e-300) if unit else rows


def strongest(scores, k):
    order = scores.flatten().argsort(descending=True, stable=True)[:k]
    return [(int(n) // V, int(n) % V) for n in order], scores.flatten()[order].tolist()


@pytest.mark.parametrize("source", ["embedding", "input-embedding", "first-mlp"])
@pytest.mark.parametrize(("centre", "unit"), [(True, True), (True, False), (False, True)])
def test_pairs_through_a_side_are_the_dense_ones(both, source, centre, unit):
    model, live = both
    rows, E = tables(model, live)[source], live.get_output_embeddings().weight[:V]
    for name in ("ov", "qk"):
        circuit = model.heads[LAYER, HEAD].circuit(name)
        left, right = circuit.matrices
        every = torch.arange(V)
        p = turned(rows @ left, every, centre, unit)
        q = turned((E if name == "ov" else rows) @ right, every, centre, unit)
        pairs, scores = strongest(p @ q.T, 25)
        how = Reading(source=source, centre=centre, unit=unit)
        found = circuit.read(how)
        top = found.top_pairs(25)
        assert [(x.i, x.j) for x in top] == pairs
        assert [x.score for x in top] == pytest.approx(scores, rel=1e-6)  # live norms are float32
        assert found.rms == pytest.approx(float((p @ q.T).square().mean().sqrt()))
        lowest = found.top_pairs(3, smallest=True)
        assert [x.score for x in lowest] == pytest.approx(
            (p @ q.T).flatten().sort()[0][:3].tolist()
        )
        row = found.row("#17", 5)
        assert [x.j for x in row] == (p @ q.T)[17].topk(5).indices.tolist()
        column = found.column("#17", 5)
        assert [x.i for x in column] == (p @ q.T)[:, 17].topk(5).indices.tolist()


def test_common_tokens_alone_take_part_and_move_the_mean(both):
    model, live = both
    rows = tables(model, live)["first-mlp"]
    E = live.get_output_embeddings().weight[:V]
    among = common_tokens(model, 90)
    how = Reading(source="first-mlp", centre=True, unit=True, common=90)
    circuit = model.heads[LAYER, HEAD].ov.read(how)
    left, right = circuit.matrices
    scores = turned(rows @ left, among, True, True) @ turned(E @ right, among, True, True).T
    outside = torch.ones(V, dtype=torch.bool).index_fill(0, among, False)
    held = scores.clone()
    held[outside], held[:, outside] = -torch.inf, -torch.inf
    found = circuit.top_pairs(20, exclude_same=True)
    held.fill_diagonal_(-torch.inf)
    assert [(x.i, x.j) for x in found] == strongest(held, 20)[0]
    assert circuit.rms == pytest.approx(float(scores[among][:, among].square().mean().sqrt()))
    stranger = int(outside.nonzero()[-1])  # asked for by name, though it does not take part
    asked = scores[stranger].masked_fill(outside, -torch.inf)
    row = circuit.row(f"#{stranger}", 5)
    assert [x.j for x in row] == asked.topk(5).indices.tolist()
    assert [x.score for x in row] == pytest.approx(asked.topk(5).values.tolist())
    mask = model.vocabulary.mask("alnum")
    held[~mask], held[:, ~mask] = -torch.inf, -torch.inf
    found = circuit.top_pairs(10, exclude_same=True, filters="alnum")
    assert [(x.i, x.j) for x in found] == strongest(held, 10)[0]


def test_maps_stand_between_the_embedding_and_the_weights(both):
    model, live = both
    rows = live.get_input_embeddings().weight[:V]
    E = live.get_output_embeddings().weight[:V]
    if model.config.model_type == "bert":
        rows = live.base_model.embeddings.LayerNorm(rows)
    elif model.config.model_type.startswith("gemma"):
        rows = live.base_model.embed_tokens(torch.arange(V))
    A, B = torch.randn(2, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    maps = {"source": {LAYER: A}, "target": {LAYER: B}}
    left, right = model.heads[LAYER, HEAD].ov.matrices
    p = turned(rows @ A @ left, torch.arange(V), True, False)
    q = turned(E @ (right.T @ B).T, torch.arange(V), True, False)
    found = model.heads[LAYER, HEAD].ov.read(
        Reading(source="mat", target="mat", centre=True, maps=maps)
    )
    assert [(x.i, x.j) for x in found.top_pairs(15)] == strongest(p @ q.T, 15)[0]
    with pytest.raises(EmbspaceError, match=r"no map was given for the (source|target) of layer 0"):
        model.heads[0, HEAD].ov.read(found.reading).top_pairs(1)


def test_single_vectors_are_read_with_the_rows_of_their_end(both):
    model, live = both
    E = live.get_output_embeddings().weight[:V]
    rows = tables(model, live)["first-mlp"]
    how = Reading(source="first-mlp", centre=True, unit=True)
    for group, table in (("v", rows), ("o", E)):
        vectors = model.vectors(LAYER, HEAD, group).read(how)
        scores = vectors.vectors @ turned(table, torch.arange(V), True, True).T
        for n, found in enumerate(vectors.top_tokens(6)):
            assert [t.id for t in found.top] == scores[n].topk(6).indices.tolist()
            assert [t.score for t in found.top] == pytest.approx(scores[n].topk(6).values.tolist())
            assert found.rms == pytest.approx(float(scores[n].square().mean().sqrt()))
    ff = model.ff[LAYER].read(how)
    for name, group in ff.groups().items():
        table = E if name == "value" else rows
        scores = group.vectors @ turned(table, torch.arange(V), True, True).T
        assert [t.id for t in group[4].top_tokens(5).top] == scores[4].topk(5).indices.tolist()


def test_the_reading_norm_is_that_of_the_block(both):
    model, live = both
    how = Reading(source="first-mlp", reading_norm=True)
    kind, base = live.config.model_type, live.base_model
    if kind == "bert":
        with pytest.raises(EmbspaceError, match="post-norm"):
            model.heads[LAYER, HEAD].ov.read(how).top_pairs(1)
        return
    norm = base.h[LAYER].ln_1 if kind == "gpt2" else base.layers[LAYER].input_layernorm
    left, right = model.heads[LAYER, HEAD].ov.matrices
    E = live.get_output_embeddings().weight[:V]
    scores = norm(first_mlp(live)) @ left @ (E @ right).T
    for extra in ("raw", "folded"):
        found = model.heads[LAYER, HEAD].ov.read(how, norm=extra)
        if extra == "raw":
            assert [(x.i, x.j) for x in found.top_pairs(10)] == strongest(scores, 10)[0]
        else:  # its gain comes with the rows, and is not folded in once more
            torch.testing.assert_close(found.matrices[0], left)


def test_block_0_meets_the_embedding_itself(both):
    model, live = both
    rows = live.get_input_embeddings().weight[:V]
    if live.config.model_type == "bert":
        rows = live.base_model.embeddings.LayerNorm(rows)
    left, right = model.heads[0, HEAD].ov.matrices
    scores = rows @ left @ (live.get_output_embeddings().weight[:V] @ right).T
    found = model.heads[0, HEAD].ov.read(Reading(source="first-mlp")).top_pairs(10)
    assert [(x.i, x.j) for x in found] == strongest(scores, 10)[0]


def test_token_states_are_those_of_a_token_read_alone(both):
    model, live = both
    ids = torch.arange(20, 60)
    table = state_table(model, "token", LAYER, ids)
    the = model.vocabulary.tokenizer("the", add_special_tokens=False)["input_ids"][0]
    start = [] if live.config.model_type == "bert" else [0]  # this tokenizer's end-of-text token
    for i in (20, 41, 59):
        passed = torch.tensor([[*start, the, i]])
        hidden = live(input_ids=passed, output_hidden_states=True).hidden_states[LAYER]
        torch.testing.assert_close(table[i].double(), hidden[0, -1], rtol=1e-5, atol=1e-5)
    assert not bool(table[:20].any())  # nobody asked for those
    how = Reading(source="token", centre=True, unit=True, common=40)
    among = common_tokens(model, 40)
    rows = state_table(model, "token", LAYER, among).double()
    left, right = model.heads[LAYER, HEAD].ov.matrices
    p = turned(rows @ left, among, True, True)
    q = turned(live.get_output_embeddings().weight[:V] @ right, among, True, True)
    scores = (p @ q.T)[among][:, among]
    (best,) = model.heads[LAYER, HEAD].ov.read(how).top_pairs(1)
    assert best.score == pytest.approx(float(scores.max()))


def test_mean_states_are_averaged_over_a_tokens_places(both):
    model, live = both
    lines = ["The cats saw the dogs.", "the cats and the cats"]
    table = state_table(model, "mean", LAYER, None, lines)
    tokenizer = model.vocabulary.tokenizer
    found = {}
    for line in lines:
        ids = tokenizer(line)["input_ids"]
        hidden = live(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[LAYER]
        for i, state in zip(ids, hidden[0], strict=True):
            found.setdefault(i, []).append(state)
    for i, states in found.items():
        torch.testing.assert_close(
            table[i].double(), torch.stack(states).mean(0), rtol=1e-5, atol=1e-5
        )
    assert not bool(table[[i for i in range(V) if i not in found]].any())


def test_state_tables_go_on_where_they_stopped(tiny_gpt2, monkeypatch):
    model = embspace.load(tiny_gpt2)
    monkeypatch.setattr("embspace.read.state_table.STEP", 16)
    ids, seen = torch.arange(40), []

    def stop(what, done, total):
        seen.append((what, done, total))
        if done >= 16 and len(seen) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_state_tables(model, "token", [1, 2], ids, progress=stop)
    assert "24 token states of 2 layers" in size_of_tables(model, "token", [1, 2], ids, None)
    make_state_tables(model, "token", [1, 2], ids, progress=stop)
    assert seen[1:] == [("token states", 16, 24), ("token states", 24, 24)]
    assert size_of_tables(model, "token", [1, 2], ids, None) == ""
    first = state_table(model, "token", 1, ids).clone()
    monkeypatch.setattr("embspace.read.state_table._token_states", None)  # nothing is run again
    assert bool((state_table(model, "token", 1, ids) == first).all())


def test_an_untied_head_is_no_source_unless_asked(both):
    model, _ = both
    expected = "embedding" if model.head_path is None else "input-embedding"
    assert {model.reading(layer).source for layer in range(2)} <= {expected, "first-mlp"}
    assert model.reading(1, source="embedding") == Reading()


def test_rows_never_trained_are_told_by_lying_together():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(2000, 128, generator=generator) + 0.3
    together = 0.3 + 0.1 * torch.randn(128, generator=generator)
    table[1900:1990] = together + 0.002 * torch.randn(90, 128, generator=generator)
    table[1995] = 0
    expected = torch.ones(2000, dtype=torch.bool)
    expected[1900:1990], expected[1995] = False, False
    assert bool((trained_tokens(VocabularySpace(table, None)) == expected).all())
    assert bool(trained_tokens(VocabularySpace(table[:1900], None)).all())


def test_common_tokens_follow_the_text_that_is_given(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    lines = ["the cats the cats", "the dogs"]
    tokenizer = model.vocabulary.tokenizer
    assert tokenizer is not None
    ids = [i for line in lines for i in tokenizer(line)["input_ids"]]
    ranked = sorted(set(ids), key=lambda i: (-ids.count(i), i))
    assert common_tokens(model, 3, lines).tolist() == sorted(ranked[:3])
    assert common_tokens(model, 5).tolist() == [1, 2, 3, 4, 5]  # 0 is the end-of-text token


def test_vectors_of_the_reader_are_ranked_by_centred_unit_rows(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    E = model.embedding()[:V].double()
    rows = E - E.mean(0)
    x = torch.randn(32, generator=torch.Generator().manual_seed(3))
    mean = E.mean(0) / E.mean(0).norm()
    across = x.double() - (x.double() @ mean) * mean
    scores = (rows / rows.norm(dim=1, keepdim=True)) @ across
    found = model.vocabulary.top(x, 7, centre=True, unit=True)
    assert [t.id for t in found] == scores.topk(7).indices.tolist()
    assert [t.score for t in found] == pytest.approx(scores.topk(7).values.tolist())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": "first"}, "unknown source"),
        ({"source": "first-mlp", "inverse": "pinv"}, "pseudo-inverse is of E"),
        ({"source": "mean"}, "give text="),
        ({"target": "mat"}, "fitted maps"),
        ({"centre": 1}, "expected True or False"),
        ({"common": 0}, "common must be at least 1"),
    ],
)
def test_a_reading_that_will_not_do_is_refused(changes, said):
    with pytest.raises(EmbspaceError, match=said):
        Reading(**changes)


def test_ov_is_vo_and_unknown_settings_are_type_errors(tiny_gpt2):
    head = embspace.load(tiny_gpt2).heads[1, 2]
    assert head.ov.top_pairs(3).to_dict() == head.vo.top_pairs(3).to_dict()
    assert head.circuit("ov").circuit == "vo"
    with pytest.raises(TypeError, match="sauce"):
        head.ov.read(sauce="first-mlp")
