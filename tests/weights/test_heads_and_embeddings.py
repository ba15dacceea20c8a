"""Which matrix is E: tied, untied, contradicting, missing, padded, narrow."""

import json
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from embspace.errors import ModelError, VocabularyError
from embspace.live.certificate import certify
from embspace.read.reader import load

SMALL = {"vocab_size": 300, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
LLAMA = {**SMALL, "intermediate_size": 20, "initializer_range": 0.5}
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "image_size": 8,
    "patch_size": 4,
}


def _set(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("config", "auto", "embedding"),
    [
        (
            hf.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4),
            "CausalLM",
            "transformer.wte",
        ),
        (
            hf.GemmaConfig(**LLAMA, num_key_value_heads=2, head_dim=8),
            "CausalLM",
            "model.embed_tokens",
        ),
        (
            hf.BertConfig(**SMALL, intermediate_size=20),
            "MaskedLM",
            "bert.embeddings.word_embeddings",
        ),
    ],
    ids=["gpt2", "gemma", "bert"],
)
def test_a_tied_head_missing_from_the_file_is_the_input_embedding(
    save_model, config, auto: str, embedding: str
):
    folder = save_model(config, f"AutoModelFor{auto}")
    stored = load_file(folder / "model.safetensors")
    assert not [n for n in stored if "lm_head.weight" in n or "decoder.weight" in n]
    model = load(folder)
    assert model.has_head and model.head_path is None
    assert torch.equal(model.embedding(), stored[f"{embedding}.weight"])


def test_a_flag_that_denies_the_tie_without_a_head_in_the_file_is_refused(save_model):
    folder = save_model(hf.LlamaConfig(**LLAMA, tie_word_embeddings=True))
    _set(folder, tie_word_embeddings=False)
    model = load(folder)
    assert not model.has_head
    with pytest.raises(ModelError, match=r"no output embedding \(lm_head"):
        model.embedding()
    assert model.embedding("input").shape == (300, 32)  # the stream can still be worked with


def test_a_flag_that_claims_a_tie_against_another_head_in_the_file_says_which_is_used(save_model):
    folder = save_model(hf.LlamaConfig(**LLAMA, tie_word_embeddings=False))
    _set(folder, tie_word_embeddings=True)
    model = load(folder)
    stored = load_file(folder / "model.safetensors")
    assert torch.equal(model.embedding(), stored["lm_head.weight"])
    assert any("lm_head.weight is used, as transformers does" in note for note in model.notes)
    assert certify(model).passed  # the live model's logits come from the same matrix


def test_a_head_that_repeats_the_embedding_is_no_second_matrix(save_model):
    folder = save_model(hf.LlamaConfig(**LLAMA, tie_word_embeddings=True))
    stored = load_file(folder / "model.safetensors")
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"].clone()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(folder)
    assert model.head_path is None and not [n for n in model.notes if "as transformers" in n]


@pytest.mark.parametrize("prefixes", ["published", "new"])
@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, True)])
def test_a_text_model_inside_another_follows_the_outer_tie_flag(
    tmp_path, outer: bool, inner: bool, prefixes: str
):
    text = {**LLAMA, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": inner}
    config = hf.Gemma3Config(
        text_config=text,
        vision_config=VISION,
        mm_tokens_per_image=4,
        image_token_id=290,
        tie_word_embeddings=outer,
    )
    live = hf.Gemma3ForConditionalGeneration(config)
    if prefixes == "published":
        live.save_pretrained(tmp_path)
    else:
        live.config.save_pretrained(tmp_path)
        state = {k: v.contiguous() for k, v in live.state_dict().items()}
        if outer:
            del state["lm_head.weight"]
        save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = load(tmp_path)
    assert (model.n_layers, model.d, model.n_heads, model.d_head) == (2, 32, 4, 8)
    expected = live.get_input_embeddings() if outer else live.lm_head
    assert torch.equal(model.embedding(), expected.weight)
    assert certify(model).passed


def test_a_classifier_has_no_head_to_read_with(save_model):
    folder = save_model(hf.LlamaConfig(**LLAMA), "AutoModelForSequenceClassification")
    model = load(folder)
    assert not model.has_head
    with pytest.raises(ModelError, match="no trained head"):
        model.vocabulary  # noqa: B018
    assert model.attention(0).W_Q.shape == (4, 32, 8)


def test_a_headless_encoder_says_that_it_is_read_by_its_input_embedding(save_model):
    config = hf.BertConfig(**SMALL, intermediate_size=20)
    model = load(save_model(config, "AutoModel"))
    assert not model.has_head
    assert any("no prediction head" in note for note in model.notes)
    assert torch.equal(model.embedding(), model.embedding("input"))


def test_padded_rows_are_no_tokens(save_model):
    """Rows 302 and 303 are 50 times row 7, up and down: they would win every ranking."""
    config = hf.GPT2Config(vocab_size=304, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5)
    folder = save_model(config)
    stored = load_file(folder / "model.safetensors")
    table = stored["transformer.wte.weight"]
    table[302], table[303] = 50 * table[7], -50 * table[7]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(folder)
    space = model.vocabulary
    assert model.embedding().shape[0] == 304 and len(space) == 300
    for smallest in (False, True):
        ids, _ = space.top_ids(model.feed_forward(0).values, 20, smallest=smallest)
        assert int(ids.max()) < 300
    with pytest.raises(VocabularyError, match="302"):
        space.find("#302")


def test_a_tokenizer_larger_than_the_model_is_counted_and_its_extra_tokens_refused(
    save_model, byte_tokenizer, tmp_path
):
    folder = save_model(
        hf.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4), tokenizer=byte_tokenizer
    )
    larger = hf.AutoTokenizer.from_pretrained(folder)
    larger.add_tokens([f"<extra{i}>" for i in range(5)])
    larger.save_pretrained(folder)
    space = load(folder).vocabulary
    assert len(space) == 300 and space.n_unreadable == 5
    with pytest.raises(VocabularyError):
        space.token_ids("<extra4>")


def test_narrow_tables_come_as_wide_as_the_stream(save_model):
    config = hf.OPTConfig(
        vocab_size=300,
        hidden_size=32,
        word_embed_proj_dim=12,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=20,
        do_layer_norm_before=False,
    )
    model = load(save_model(config))
    stored = load_file(model.folder / "model.safetensors")
    table = stored["model.decoder.embed_tokens.weight"]
    out, inward = (stored[f"model.decoder.project_{w}.weight"] for w in ("out", "in"))
    assert torch.allclose(model.embedding(), table @ out)
    assert torch.allclose(model.embedding("input"), table @ inward.T)


def test_shared_weights_are_told(save_model):
    config = hf.AlbertConfig(
        vocab_size=300,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=4,
        num_hidden_groups=1,
        num_attention_heads=4,
        intermediate_size=20,
    )
    model = load(save_model(config, "AutoModelForMaskedLM"))
    assert model.layout.shares_weights_with(2) == [0, 1, 2, 3]
    assert any("share" in note for note in model.notes)


@pytest.mark.parametrize(("n", "groups"), [(12, 5), (18, 14), (36, 28)])
def test_layers_share_the_group_that_the_live_model_runs(save_model, n: int, groups: int):
    """Of 36 layers in 28 groups transformers rounds some down, by the rounding of a division."""
    config = hf.AlbertConfig(
        vocab_size=300,
        embedding_size=4,
        hidden_size=8,
        num_hidden_layers=n,
        num_hidden_groups=groups,
        num_attention_heads=2,
        intermediate_size=4,
    )
    folder = save_model(config, "AutoModelForMaskedLM")
    live, ran = hf.AlbertForMaskedLM.from_pretrained(folder).eval(), []
    for g, group in enumerate(live.albert.encoder.albert_layer_groups):
        group.register_forward_hook(lambda *_, g=g: ran.append(g))
    live(input_ids=torch.tensor([[5, 6]]))
    layout = load(folder).layout
    assert [layout.block(l).split(".")[3] for l in range(n)] == [str(g) for g in ran]


@pytest.mark.parametrize("layer", [3, -1])
def test_a_layer_that_does_not_exist_is_refused_with_the_range(tiny_gpt2, layer: int):
    with pytest.raises(ModelError, match="0 to 2"):
        load(tiny_gpt2).attention(layer)
