"""One folder, one model: our reading and the live model are of the same tensors, or refused."""

import json
import os
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from embspace.errors import ModelError
from embspace.live.certificate import certify
from embspace.live.running import run
from embspace.read.reader import load

LAST = "transformer.h.2.mlp.c_proj.weight"  # of a block that the cheap certificate does not run


def write(state: dict[str, torch.Tensor], path: Path) -> None:
    save_file(state, path, metadata={"format": "pt"})


def changed(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a folder with another last block."""
    state = load_file(folder / "model.safetensors")
    return state | {LAST: state[LAST] + 1}


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_a_single_file_beside_shards_is_what_both_read(tiny_gpt2, sharded, kind: str):
    """Left behind by an earlier save: transformers prefers the single file."""
    state = changed(tiny_gpt2)
    if kind == "safetensors":
        write(state, sharded / "model.safetensors")
    else:  # of the shards' older format
        for shard in sharded.glob("*.safetensors"):
            torch.save(load_file(shard), sharded / f"{shard.stem}.bin")
            shard.unlink()
        index = json.loads((sharded / "model.safetensors.index.json").read_text())
        index["weight_map"] = {
            name: shard.replace(".safetensors", ".bin")
            for name, shard in index["weight_map"].items()
        }
        (sharded / "model.safetensors.index.json").unlink()
        (sharded / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        torch.save(state, sharded / "pytorch_model.bin")
    model = load(sharded)
    live = run(model).module.transformer.h[2].mlp.c_proj.weight
    assert torch.equal(model.feed_forward(2).values, live)
    assert certify(model).passed


def test_a_weight_under_two_prefixes_with_different_values_is_refused(tiny_gpt2, copy):
    folder = copy(tiny_gpt2)
    state = load_file(folder / "model.safetensors")
    write(
        state | {LAST.removeprefix("transformer."): state[LAST] + 1}, folder / "model.safetensors"
    )
    with pytest.raises(
        ModelError, match=rf"both {LAST} and h\.2\.mlp\.c_proj\.weight, which differ"
    ):
        load(folder)
    write(
        state | {LAST.removeprefix("transformer."): state[LAST].clone()},
        folder / "model.safetensors",
    )
    assert certify(load(folder)).passed


def test_a_norm_by_its_old_and_its_new_name_is_refused(save_model, copy, byte_tokenizer):
    config = hf.BertConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=44,
    )
    folder = copy(save_model(config, "AutoModelForMaskedLM"))
    state = load_file(folder / "model.safetensors")
    old = "bert.embeddings.LayerNorm.gamma"
    write(
        state | {old: state["bert.embeddings.LayerNorm.weight"] + 1}, folder / "model.safetensors"
    )
    with pytest.raises(ModelError, match=r"by its old name bert\.embeddings\.LayerNorm\.gamma too"):
        load(folder)


def test_weights_that_the_config_names_elsewhere_are_refused(tiny_gpt2, copy):
    """Of which the live model would be."""
    folder = copy(tiny_gpt2)
    write(changed(tiny_gpt2), folder / "other.safetensors")
    config = json.loads((folder / "config.json").read_text())
    named = json.dumps(config | {"transformers_weights": "other.safetensors"})
    (folder / "config.json").write_text(named)
    with pytest.raises(ModelError, match=r"weights are in 'other\.safetensors'"):
        load(folder)


def test_an_adapter_beside_a_whole_model_is_refused(tiny_llama, copy):
    """Where peft is installed, transformers adds it to the live model."""
    folder = copy(tiny_llama)
    adapter = {"base_model_name_or_path": "someone/base", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    with pytest.raises(ModelError, match="a whole model and an adapter"):
        load(folder)


@pytest.mark.parametrize("kind", ["F6_E2M3", "F4", "F8_E8M0"])
def test_a_tensor_of_numbers_that_are_no_floats_of_torch_is_told_and_no_bug(
    tiny_gpt2, copy, kind: str
):
    folder = copy(tiny_gpt2)
    file = folder / "model.safetensors"
    length = int.from_bytes(file.read_bytes()[:8], "little")
    header = json.loads(file.read_bytes()[8 : 8 + length])
    end = max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__")
    size = {"F6_E2M3": 12, "F4": 8, "F8_E8M0": 16}[kind]
    for name in ("extra", "transformer.h.2.attn.c_proj.weight"):
        new = {"dtype": kind, "shape": [16], "data_offsets": [end, end + size]}
        rest = {k: v for k, v in header.items() if k != name}
        made = json.dumps(rest | {name: new}).encode()
        made += b" " * (-len(made) % 8)
        data = (tiny_gpt2 / "model.safetensors").read_bytes()[8 + length :]
        file.write_bytes(len(made).to_bytes(8, "little") + made + data + bytes(size))
        if name == "extra" and kind != "F6_E2M3":
            assert load(folder).provenance["model_hash"] != load(tiny_gpt2).provenance["model_hash"]
            continue
        with pytest.raises(ModelError) as caught:
            assert load(folder).provenance
        assert "\n" not in str(caught.value)


def test_blocks_beyond_those_of_the_config_are_said_to_be_left_out(tiny_gpt2, copy):
    folder = copy(tiny_gpt2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_layer": 2}))
    model = load(folder)
    assert model.n_layers == 2 and certify(model).passed
    assert [note for note in model.notes if "beyond the 2 of the config" in note]
    assert not [note for note in load(tiny_gpt2).notes if "beyond" in note]


@pytest.mark.parametrize("how", ["replaced", "in place"])
def test_weights_written_over_after_they_were_opened_are_not_run(tiny_gpt2, copy, how: str):
    """As a training does that saves its next step into the same folder."""
    folder = copy(tiny_gpt2)
    model = load(folder)
    if how == "replaced":
        write(changed(tiny_gpt2), folder / "next")
        os.replace(folder / "next", folder / "model.safetensors")
    else:
        write(changed(tiny_gpt2), folder / "next")
        (folder / "model.safetensors").write_bytes((folder / "next").read_bytes())
    with pytest.raises(ModelError, match=r"model\.safetensors .* was written over"):
        run(model)
    assert torch.equal(load(folder).feed_forward(2).values, changed(tiny_gpt2)[LAST])


@pytest.mark.parametrize("name", ["folder", "sample-gpt2"])
def test_a_revision_of_what_is_not_on_the_hub_is_refused_and_never_recorded(tiny_gpt2, name: str):
    with pytest.raises(ModelError, match="no Hub name, so it has no revision 'v2'"):
        load(tiny_gpt2 if name == "folder" else name, revision="v2")
