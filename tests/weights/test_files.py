"""Files as they come from the world: of any dtype, packed, partial, in other formats."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from embspace.errors import ModelError
from embspace.live.certificate import certify
from embspace.read.reader import load


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_stored_dtype_is_computed_with_in_float32(tiny_gpt2, copy, dtype: torch.dtype):
    folder = copy(tiny_gpt2)
    stored = {k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(folder)
    record = model.provenance
    assert record["stored_dtype"] == str(dtype).removeprefix("torch.")
    assert record["dtype"] == "float32"
    assert model.attention(0).W_Q.dtype == model.feed_forward(0).values.dtype == torch.float32
    assert model.embedding().dtype == dtype  # as stored, until it is used
    assert model.vocabulary.project(torch.ones(2, model.d)).dtype == torch.float32
    certificate = certify(model, layers="first")
    assert certificate.passed and certificate.stored_dtype == record["stored_dtype"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "nonsense"])
def test_arithmetic_in_sixteen_bits_is_not_offered(tiny_gpt2, dtype: str):
    with pytest.raises(ModelError, match="float32 or float64"):
        load(tiny_gpt2, dtype=dtype)


def test_a_quantised_checkpoint_is_refused_by_its_method(tiny_llama, copy):
    folder = copy(tiny_llama)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"quantised checkpoint \(gptq\)"):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.float8_e4m3fn])
def test_packed_weights_are_refused_by_name_and_never_cast(tiny_llama, copy, dtype):
    folder = copy(tiny_llama)
    stored = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.q_proj.weight"
    stored[name] = torch.zeros(stored[name].shape, dtype=torch.uint8).view(torch.uint8).to(dtype)
    if dtype == torch.uint8:
        stored[name] = torch.zeros(512, 1, dtype=dtype)
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(ModelError, match=rf"{name} is stored as .*packed or quantised"):
        load(folder)


def test_an_adapter_without_its_base_is_named_as_such(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "x"}')
    save_file({"lora": torch.ones(1)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="adapter without its base model"):
        load(tmp_path)


def test_an_adapter_beside_a_config_is_named_as_such(tiny_llama, tmp_path):
    shutil.copy(tiny_llama / "config.json", tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="adapter without its base model"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no config.json"),
        ("{", "not valid JSON"),
        ("{}", "names no model_type"),
        ('{"model_type": "no_such_type"}', "cannot be used"),
        ('{"model_type": "t5", "num_layers": 1, "d_model": 8}', "encoder-decoder"),
    ],
)
def test_a_folder_that_is_no_model_says_why(tmp_path, content: str | None, message: str):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


def test_weights_of_another_format_are_named(tiny_gpt2, tmp_path):
    shutil.copy(tiny_gpt2 / "config.json", tmp_path)
    (tmp_path / "tf_model.h5").touch()
    with pytest.raises(ModelError, match=r"holds no weights: only tf_model\.h5"):
        load(tmp_path)


def test_a_matrix_of_another_size_than_the_config_says_is_named(tiny_llama, copy):
    folder = copy(tiny_llama)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "head_dim": 4}))
    with pytest.raises(ModelError, match=r"layer 0: self_attn\.q_proj is \(48, 36\), expected"):
        load(folder).attention(0).W_Q  # noqa: B018
