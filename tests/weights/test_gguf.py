"""GGUF files against their safetensors twins."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file

from embspace.errors import ModelError
from embspace.live.certificate import certify
from embspace.read.reader import load

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers.": "blk.",
}
GEMMA_NAMES = NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}


def _as_gguf(folder: Path, target: Path, arch: str = "llama", **more: Any) -> None:
    """Write a checkpoint as llama.cpp does: its own names; of Llama q and k rows permuted, of Gemma
    1 added to the norms. more: `lacks` a tensor, `tensors` besides, a kind of rotary `scaling`.
    """
    gguf = pytest.importorskip("gguf")
    config = hf.AutoConfig.from_pretrained(folder)
    writer = gguf.GGUFWriter(target, arch)
    _write_settings(writer, config)
    if "scaling" in more:
        writer.add_string(f"{arch}.rope.scaling.type", more["scaling"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name == more.get("lacks"):
            continue
        if arch == "llama":
            tensor = _permuted(name, tensor, config)
        elif "norm" in name:
            tensor = tensor + 1
        for old, new in (NAMES if arch == "llama" else GEMMA_NAMES).items():
            name = name.replace(old, new)
        writer.add_tensor(name, tensor.float().numpy())
    for name, tensor in more.get("tensors", {}).items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_settings(writer: Any, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    pieces = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(config.vocab_size - 3))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * len(pieces))
    writer.add_token_types([2, 3, 3, *[1] * (len(pieces) - 3)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _permuted(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, n in heads.items():
        if part in name:
            rows = tensor.reshape(n, 2, -1, tensor.shape[1]).swapaxes(1, 2)
            return rows.reshape(tensor.shape).contiguous()
    return tensor


SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.5,
}


@pytest.fixture
def llama(save_model, tmp_path, monkeypatch) -> Path:
    """A small Llama in safetensors; an empty cache."""
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    return save_model(hf.LlamaConfig(**SIZES, tie_word_embeddings=False))


def test_a_gguf_file_equals_its_safetensors_twin(save_model, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    config = hf.LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=44,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,
        tie_word_embeddings=False,
    )
    folder = save_model(config)
    file = tmp_path / "tiny.gguf"
    _as_gguf(folder, file)
    capfd.readouterr()
    twin, model = load(folder), load(file)
    assert capfd.readouterr() == ("", "")  # the loader's own bar is not drawn
    assert any("dequantised from tiny.gguf (F32)" in note for note in model.notes)
    assert model.provenance["stored_dtype"] == "gguf F32"
    for layer in range(2):
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            ours, true = (getattr(m.attention(layer), name) for m in (model, twin))
            assert torch.equal(ours, true), name
        assert torch.equal(model.feed_forward(layer).values, twin.feed_forward(layer).values)
        assert torch.equal(model.reading_gain(layer, "ff"), twin.reading_gain(layer, "ff"))
    assert torch.equal(model.embedding(), twin.embedding())
    assert certify(model).passed
    (model.folder / "embspace-source.json").unlink()  # an older version's: made again
    assert load(file).provenance["stored_dtype"] == "gguf F32"
    monkeypatch.setattr("embspace.weights.gguf._convert", lambda *a: pytest.fail("unpacked again"))
    assert load(file).checkpoint.fingerprint == model.checkpoint.fingerprint


def test_a_gguf_path_that_is_no_gguf_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no file"):
        load(tmp_path / "missing.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"not a gguf file")
    with pytest.raises(ModelError, match=r"bad\.gguf cannot be read"):
        load(tmp_path / "bad.gguf")


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_norms_of_gemma_that_a_gguf_file_holds_with_1_added_equal_the_twins(
    save_model, tmp_path, monkeypatch, kind: str
):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    classes = {"gemma2": hf.Gemma2Config, "gemma3": hf.Gemma3TextConfig}
    folder = save_model(classes[kind](**SIZES, head_dim=8, query_pre_attn_scalar=8))
    file = tmp_path / "tiny.gguf"
    _as_gguf(folder, file, kind)
    twin, model = load(folder), load(file)
    for layer in range(2):
        for part in ("attn", "ff"):
            for gain in ("reading_gain", "writing_gain"):
                ours, true = (getattr(m, gain)(layer, part) for m in (model, twin))
                assert torch.allclose(ours, true, atol=1e-6), gain
        assert torch.equal(model.attention(layer).W_Q, twin.attention(layer).W_Q)
    assert torch.allclose(model.final_gain(), twin.final_gain(), atol=1e-6)
    assert certify(model).passed


def test_a_file_that_lacks_a_tensor_is_refused_and_never_filled_with_random_numbers(
    llama, tmp_path
):
    """The first of several parts, say: the loader itself goes on."""
    _as_gguf(llama, tmp_path / "part.gguf", lacks="model.layers.1.mlp.down_proj.weight")
    with pytest.raises(ModelError, match=r"lacks model\.layers\.1\.mlp\.down_proj\.weight"):
        load(tmp_path / "part.gguf")
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]


@pytest.mark.parametrize("what", ["tensor", "setting"])
def test_rotary_scaling_that_the_loader_leaves_out_is_said(llama, tmp_path, what: str):
    scaled = {
        "tensor": {"tensors": {"rope_freqs.weight": torch.ones(4)}},
        "setting": {"scaling": "linear"},
    }
    _as_gguf(llama, tmp_path / "scaled.gguf", **scaled[what])
    said = {"tensor": "rope_freqs.weight", "setting": "llama.rope.scaling.type"}
    for _ in range(2):  # converted, and as it is remembered
        (note,) = [n for n in load(tmp_path / "scaled.gguf").notes if "leaves out" in n]
        assert said[what] in note


@pytest.mark.parametrize("damage", ["cut", "lost", "tokenizer lost", "not said"])
def test_a_damaged_twin_in_the_cache_is_made_again(llama, tmp_path, damage: str):
    file = tmp_path / "tiny.gguf"
    _as_gguf(llama, file)
    before = load(file)
    fingerprint, kept = before.checkpoint.fingerprint, before.folder / "model.safetensors"
    if damage == "cut":
        kept.write_bytes(kept.read_bytes()[:-20])
    else:
        lost = {"lost": kept.name, "tokenizer lost": "tokenizer.json"}
        (kept.parent / lost.get(damage, "embspace-source.json")).unlink()
    again = load(file)
    assert again.checkpoint.fingerprint == fingerprint and (again.folder / kept.name).is_file()
    assert (again.folder / "tokenizer.json").is_file()


def test_another_file_of_the_same_name_size_and_time_is_not_taken_for_the_first(llama, tmp_path):
    file = tmp_path / "tiny.gguf"
    _as_gguf(llama, file)
    fingerprint, stat = load(file).checkpoint.fingerprint, file.stat()
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(bytes(content))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert load(file).checkpoint.fingerprint != fingerprint
