"""Shards: checked when opened, read when used, told apart by what they hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from embspace.errors import ModelError
from embspace.live.certificate import certify
from embspace.read.reader import load
from embspace.weights.tensors import Checkpoint

INDEX = "model.safetensors.index.json"


def test_shards_hold_the_same_model_as_one_file(tiny_gpt2, sharded):
    one, many = load(tiny_gpt2), load(sharded)
    assert set(one.checkpoint.names) == set(many.checkpoint.names)
    assert torch.equal(one.attention(2).W_O, many.attention(2).W_O)
    assert one.checkpoint.fingerprint == many.checkpoint.fingerprint
    assert certify(many, layers="first").passed


def test_a_missing_shard_is_named(sharded):
    lost = sorted(sharded.glob("*.safetensors"))[2]
    lost.unlink()
    with pytest.raises(ModelError, match=rf"{lost.name} is named by {INDEX} but missing"):
        load(sharded)


def test_a_short_shard_is_named_with_what_it_lacks(sharded):
    short = sorted(sharded.glob("*.safetensors"))[3]
    short.write_bytes(short.read_bytes()[:-100])
    with pytest.raises(ModelError, match=rf"{short.name} .* is 100 bytes short"):
        load(sharded)


def test_a_single_file_cut_short_is_refused_at_once(tiny_gpt2, copy):
    folder = copy(tiny_gpt2)
    file = folder / "model.safetensors"
    content = file.read_bytes()
    for kept in (content[:-1], content[:100], content[:4], b""):
        file.write_bytes(kept)
        with pytest.raises(ModelError, match=r"model\.safetensors"):
            load(folder)


def test_a_shard_that_lacks_what_the_index_promises_is_named(sharded):
    index = json.loads((sharded / INDEX).read_text())
    name, shard = next(iter(index["weight_map"].items()))
    other = next(s for s in index["weight_map"].values() if s != shard)
    index["weight_map"][name] = other
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match=rf"{other} lacks {name}"):
        load(sharded)


@pytest.mark.parametrize(
    "outside", ["../secret.safetensors", "/etc/passwd", "..", "", "a/b.safetensors", 7, None]
)
def test_an_index_that_points_outside_its_folder_is_refused(sharded, outside):
    (sharded.parent / "secret.safetensors").write_bytes(b"secret")
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["transformer.wte.weight"] = outside
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match="not a file beside it"):
        load(sharded)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_a_damaged_index_is_refused(sharded, content: str):
    (sharded / INDEX).write_text(content)
    with pytest.raises(ModelError, match="not a readable shard index"):
        load(sharded)


def test_the_fingerprint_follows_the_weights_and_nothing_else(tiny_gpt2, copy):
    folder = copy(tiny_gpt2)
    before = load(folder).checkpoint.fingerprint
    assert before == load(tiny_gpt2).checkpoint.fingerprint  # not the path
    stored = load_file(folder / "model.safetensors")
    save_file(dict(reversed(stored.items())), folder / "model.safetensors")
    assert load(folder).checkpoint.fingerprint == before  # not the order in the file
    stored["transformer.h.1.mlp.c_fc.weight"][3, 5] += 1e-3
    save_file(stored, folder / "model.safetensors")
    assert load(folder).checkpoint.fingerprint != before
    half = {name: tensor.half() for name, tensor in stored.items()}
    save_file(half, folder / "model.safetensors")
    assert load(folder).checkpoint.fingerprint != before


def test_reading_one_head_touches_the_bytes_of_its_matrices_only(sharded):
    load(sharded).require_proof()
    model = load(sharded)  # takes the kept proof
    assert not model.checkpoint.bytes_read
    attention = model.attention(1)
    _ = attention.W_V, attention.W_O
    index = json.loads((sharded / INDEX).read_text())["weight_map"]
    names = ["c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias"]
    paths = [f"transformer.h.1.attn.{name}" for name in names]
    assert set(model.checkpoint.bytes_read) == {index[path] for path in paths}
    sizes = {path: model.checkpoint.shape(path) for path in paths}
    expected = sum(4 * torch.Size(size).numel() for size in sizes.values())
    assert sum(model.checkpoint.bytes_read.values()) == expected
    _ = attention.W_V  # a second look reads nothing new
    assert sum(model.checkpoint.bytes_read.values()) == expected


MEMORY_SCRIPT = """
import resource, sys
from embspace.read.reader import load
load(sys.argv[1]).attention(0).W_Q.sum()  # imports and buffers are there
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = load(sys.argv[2], check=False)
attention = model.attention(5)
head = attention.W_V[3] @ attention.W_O[3]
rows = model.embedding()[:10].float() @ head
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_grows_by_one_layer_not_by_the_checkpoint(tiny_llama, tmp_path):
    config = hf.LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=16,
        tie_word_embeddings=True,
    )
    config.save_pretrained(tmp_path)
    total = _sparse_checkpoint(tmp_path, config)
    assert total > 700e6
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, str(tiny_llama), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 0.1 * total


def _sparse_checkpoint(folder: Path, config: hf.LlamaConfig) -> int:
    """A checkpoint of zeros in one shard a layer, written without writing the zeros."""
    with torch.device("meta"):
        state = hf.AutoModelForCausalLM.from_config(config).state_dict()
    shards: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in state.items():
        if name != "lm_head.weight":
            layer = name.split(".")[2] if ".layers." in name else "rest"
            shards.setdefault(f"model-{layer}.safetensors", {})[name] = tensor
    for shard, tensors in shards.items():
        header, at = {}, 0
        for name, tensor in tensors.items():
            size = 4 * tensor.numel()
            header[name] = {
                "dtype": "F32",
                "shape": list(tensor.shape),
                "data_offsets": [at, at + size],
            }
            at += size
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        with (folder / shard).open("wb") as file:
            file.write(len(raw).to_bytes(8, "little") + raw)
            file.truncate(8 + len(raw) + at)
    weight_map = {name: shard for shard, tensors in shards.items() for name in tensors}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return Checkpoint(folder).n_bytes
