"""GGUF files against their safetensors twins."""

from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file

from embspace.errors import ModelError
from embspace.models.certify import certify
from embspace.models.load import load


def _as_gguf(folder: Path, target: Path) -> None:
    """Write a Llama checkpoint as llama.cpp does: its own names, q and k rows permuted."""
    gguf = pytest.importorskip("gguf")
    config = hf.AutoConfig.from_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    pieces = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(config.vocab_size - 3))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * len(pieces))
    writer.add_token_types([2, 3, 3, *[1] * (len(pieces) - 3)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = {
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
    }
    for name, tensor in stored.items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for part, n in heads.items():
            if part in name:
                rows = tensor.reshape(n, 2, -1, tensor.shape[1]).swapaxes(1, 2)
                tensor = rows.reshape(tensor.shape).contiguous()
        for old, new in names.items():
            name = name.replace(old, new)
        writer.add_tensor(name.replace("model.layers.", "blk."), tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
    monkeypatch.setattr("embspace.models.gguf._convert", lambda *a: pytest.fail("unpacked again"))
    assert load(file).checkpoint.fingerprint == model.checkpoint.fingerprint


def test_a_gguf_path_that_is_no_gguf_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no file"):
        load(tmp_path / "missing.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"not a gguf file")
    with pytest.raises(ModelError, match=r"bad\.gguf cannot be read"):
        load(tmp_path / "bad.gguf")
