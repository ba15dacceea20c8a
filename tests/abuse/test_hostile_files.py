"""Hostile checkpoint files and configs are refused in words, and run nothing."""

import json
import os
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import embspace
from embspace.errors import CannotRunError, ModelError
from embspace.read.reader import load

from .damage import ATTENTION, INDEX, VALUES, edit, entry, in_one_line, with_header, with_tensors


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**40, 2**63, 2**64 - 1])
def test_an_absurd_header_length_is_refused(tiny_gpt2, copy, length):
    file = copy(tiny_gpt2) / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(file.parent)


@pytest.mark.parametrize(
    "header",
    [
        *(b"[]", b"3", b"null", b"{}", b'{"a":3}', b'{"__metadata__":3}', b"\xff"),
        *(entry("[-8,8]"), entry("[8,0]"), entry("[0,4]", "[-1]"), entry("[0,1e400]")),
        *(entry("[0,NaN]"), entry("[0,%s]" % ("9" * 5000)), entry("[0,4]", f"[{2**62},{2**62}]")),
    ],
    ids=lambda header: header[:70].decode("latin1"),
)
def test_a_false_header_is_refused(tiny_gpt2, copy, header):
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(with_header(copy(tiny_gpt2), header))


@pytest.mark.parametrize(
    "header",
    [entry('["x","y"]'), entry("[0,null]"), entry("[0,[4]]"), entry("[]"), b"[" * 200_000],
    ids=lambda header: header[:70].decode("latin1"),
)
def test_a_header_of_wrong_types_is_refused(tiny_gpt2, copy, header):
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(with_header(copy(tiny_gpt2), header))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_packed_embeddings_are_refused(tiny_gpt2, copy, run, dtype):
    name = "transformer.wte.weight"
    stored = load_file(tiny_gpt2 / "model.safetensors")[name]
    folder = with_tensors(copy(tiny_gpt2), **{name: stored.to(dtype)})
    for command in ("heads", "ff"):
        result = run(command, folder, "-k", 1)
        assert result.exit_code == 1 and "packed or quantised" in result.stderr


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["transformer.wte.weight", ATTENTION, VALUES])
def test_weights_that_are_no_numbers_are_refused(tiny_gpt2, copy, run, name, value):
    tensor = load_file(tiny_gpt2 / "model.safetensors")[name]
    tensor.view(-1)[7] = value
    folder = with_tensors(copy(tiny_gpt2), **{name: tensor})
    for command in ("heads", "ff", "check"):
        assert run(command, folder).exit_code == 1


@pytest.mark.parametrize("cut", [slice(0), slice(-1)], ids=["empty", "short"])
def test_matrices_that_contradict_the_config_are_refused(tiny_gpt2, copy, run, cut):
    tensor = load_file(tiny_gpt2 / "model.safetensors")[VALUES]
    folder = with_tensors(copy(tiny_gpt2), **{VALUES: tensor[cut].contiguous()})
    in_one_line(run("heads", folder, "-k", 1))


def test_an_embedding_that_is_no_matrix_is_refused(tiny_gpt2, copy, run):
    name = "transformer.wte.weight"
    flat = load_file(tiny_gpt2 / "model.safetensors")[name].reshape(-1)
    in_one_line(run("heads", with_tensors(copy(tiny_gpt2), **{name: flat})))


def test_a_live_model_of_other_shapes_is_no_reason_to_read_without_proof(tiny_gpt2, copy):
    name = "transformer.h.1.ln_2.weight"  # of no matrix that is read: the live model tells
    folder = with_tensors(copy(tiny_gpt2), **{name: torch.ones(31)})
    with pytest.raises(ModelError, match=rf"{name} is \(31,\).*asks for \(32,\)"):
        embspace.certify(load(folder))


def test_a_tensor_of_a_block_that_is_not_there_is_named(tiny_gpt2, copy):
    folder, name = copy(tiny_gpt2), "transformer.h.1.ln_2.weight"
    stored = load_file(folder / "model.safetensors")
    del stored[name]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=rf"lacks {name}"):
        embspace.certify(load(folder))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (VALUES, (52, 31)),
        (ATTENTION, (96, 32)),
        ("transformer.h.2.attn.c_proj.weight", (31, 32)),
        ("transformer.h.2.attn.c_attn.bias", (95,)),
        ("transformer.wte.weight", (304, 31)),
        ("transformer.wte.weight", (0, 32)),
    ],
)
def test_shapes_are_compared_when_a_model_is_opened(tiny_gpt2, copy, name, shape):
    with pytest.raises(ModelError, match=r"expected|no projection"):
        load(with_tensors(copy(tiny_gpt2), **{name: torch.ones(shape)}))


def test_what_transformers_does_not_know_cannot_be_run(tiny_gpt2, monkeypatch):
    from transformers import AutoConfig

    from embspace.live.running import run as run_live

    model = load(tiny_gpt2)
    monkeypatch.setattr(AutoConfig, "from_pretrained", lambda *a, **b: 1 / 0)
    with pytest.raises(CannotRunError, match="own code"):
        run_live(model)


@pytest.mark.parametrize("name", ["a/b.bin", "x.txt", "a\nb.bin", "n" * 300 + ".bin", ".."])
def test_shards_are_plain_files_of_weights(tiny_gpt2, copy, name):
    folder = copy(tiny_gpt2)
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"transformer.wte.weight": name}}))
    with pytest.raises(ModelError, match="not a file beside it"):
        load(folder)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.ones(1, device="meta")])
def test_tensors_without_dense_values_are_refused(tiny_gpt2, copy, tensor):
    folder = copy(tiny_gpt2)
    (folder / "model.safetensors").unlink()
    torch.save({"transformer.wte.weight": tensor}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin"):
        load(folder)


@pytest.mark.parametrize("shard", [[], {}], ids=str)
def test_an_index_that_names_no_string_is_refused(tiny_gpt2, copy, shard):
    folder = copy(tiny_gpt2)
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"transformer.wte.weight": shard}}))
    with pytest.raises(ModelError):
        load(folder)


@pytest.mark.parametrize("file", ["config.json", INDEX])
def test_deeply_nested_json_is_refused(tiny_gpt2, copy, file):
    folder = copy(tiny_gpt2)
    if file == INDEX:
        (folder / "model.safetensors").unlink()
    (folder / file).write_text("[" * 200_000)
    with pytest.raises(ModelError):
        load(folder)


@pytest.mark.parametrize("what", ["loop", "dangling", "folder", "fifo"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_what_is_no_file_is_refused_and_does_not_hang(tiny_gpt2, copy, what, file):
    path = copy(tiny_gpt2) / file
    path.unlink()
    make = {
        "loop": lambda: path.symlink_to(path.name),
        "dangling": lambda: path.symlink_to("/nowhere/at/all"),
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
    }
    make[what]()
    with pytest.raises(ModelError, match="holds no"):
        load(path.parent)


class _Runs:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_code_in_any_place_does_not_run(tiny_gpt2, copy, tmp_path, zipped):
    folder, touched = copy(tiny_gpt2), tmp_path / "touched"
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    for content in (_Runs(touched), {"transformer.wte.weight": _Runs(touched)}, [1], 3, {"a": 3}):
        torch.save(content, file, _use_new_zipfile_serialization=zipped)
        with pytest.raises(ModelError):
            load(folder)
    assert not touched.exists()


@pytest.mark.parametrize("content", ["empty", "number for a name"])
def test_a_bin_file_of_nothing_is_refused(tiny_gpt2, copy, content):
    folder = copy(tiny_gpt2)
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    file.touch() if content == "empty" else torch.save({1: torch.ones(1)}, file)
    with pytest.raises(ModelError, match=r"pytorch_model\.bin"):
        load(folder)


@pytest.mark.parametrize("value", [None, [], {}, "x", -1, 0, 10**30, 1.5], ids=str)
@pytest.mark.parametrize("key", ["n_layer", "n_embd", "activation_function"])
def test_nonsense_in_the_config_is_never_a_bug(tiny_gpt2, copy, run, key, value):
    result = run("heads", edit(copy(tiny_gpt2), "config.json", **{key: value}), "-k", 1)
    assert result.exit_code in (0, 1) and "unexpected " not in result.stderr


@pytest.mark.parametrize("value", [[], {}, "x", 3, True], ids=str)
def test_a_text_config_that_is_none_is_refused(tiny_llama, copy, value):
    with pytest.raises(ModelError):
        load(edit(copy(tiny_llama), "config.json", text_config=value))


@pytest.mark.parametrize("key", ["head_dim", "num_key_value_heads"])
def test_negative_head_sizes_are_refused(tiny_llama, copy, key):
    with pytest.raises(ModelError, match=key):
        load(edit(copy(tiny_llama), "config.json", **{key: -1}))
