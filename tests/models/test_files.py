"""Files as they come from the world: missing, short, pickled, packed, hostile, in other formats."""

import json
import pickle
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from embspace.errors import ModelError
from embspace.models.certify import certify
from embspace.models.load import load, load_tokenizer
from embspace.models.tensors import Checkpoint

INDEX = "model.safetensors.index.json"


@pytest.fixture
def copy(tmp_path: Path):
    """A copy of a model folder that may be damaged."""

    def make(folder: Path, name: str = "copy") -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    return make


@pytest.fixture
def sharded(tiny_gpt2: Path, tmp_path: Path) -> Path:
    """The small GPT-2 in a dozen shards."""
    folder = tmp_path / "sharded"
    live = hf.AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    live.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 5
    return folder


class _Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


# shards ------------------------------------------------------------------------------------


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


# fingerprints ------------------------------------------------------------------------------


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


# dtypes ------------------------------------------------------------------------------------


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


# pickles and remote code -------------------------------------------------------------------


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tiny_gpt2, copy, tmp_path):
    folder, touched = copy(tiny_gpt2), tmp_path / "touched"
    (folder / "model.safetensors").unlink()
    for protocol in (2, 4):
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Evil(touched), protocol))
        with pytest.raises(ModelError, match=r"pytorch_model\.bin is refused"):
            load(folder)
    torch.save({"a": torch.ones(2), "b": _Evil(touched)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is refused"):
        load(folder)
    assert not touched.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_an_honest_bin_file_is_read(tiny_gpt2, copy, zipped: bool):
    folder = copy(tiny_gpt2)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    model = load(folder)
    assert torch.equal(model.attention(1).W_V, load(tiny_gpt2).attention(1).W_V)
    assert certify(model, layers="first").passed


def test_safetensors_are_preferred_to_a_pickle_beside_them(tiny_gpt2, copy, tmp_path):
    folder, touched = copy(tiny_gpt2), tmp_path / "touched"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Evil(touched)))
    assert load(folder).n_layers == 3
    assert certify(load(folder), layers="first").passed
    assert not touched.exists()


def test_code_in_the_folder_is_not_run_and_nothing_is_asked(tiny_gpt2, copy, tmp_path, monkeypatch):
    folder, touched = copy(tiny_gpt2), tmp_path / "touched"
    code = f"import pathlib\npathlib.Path({str(touched)!r}).touch()\n"
    for name in ("configuration_evil.py", "modeling_evil.py", "tokenization_evil.py"):
        (folder / name).write_text(code)
    for file, auto_map in (
        ("config.json", {"AutoConfig": "configuration_evil.EvilConfig"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["tokenization_evil.EvilTokenizer", None]}),
    ):
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**content, "auto_map": auto_map}))
    monkeypatch.setattr("builtins.input", lambda *a: pytest.fail("asked a question"))
    monkeypatch.setattr(sys, "stdin", None)
    model = load(folder)  # a known architecture: its own class is used, the folder's code is not
    load_tokenizer(model)
    assert certify(model, layers="first").passed
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "evil"}))
    with pytest.raises(ModelError, match=r"run its own code \(evil\): refused.*trust_remote_code"):
        load(folder)
    assert not touched.exists()


def test_a_tokenizer_that_needs_its_own_code_is_refused_in_one_line(tiny_gpt2, copy, tmp_path):
    folder, touched = copy(tiny_gpt2), tmp_path / "touched"
    (folder / "tokenization_evil.py").write_text(f"open({str(touched)!r}, 'w')\n")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "EvilTokenizer",
                "auto_map": {"AutoTokenizer": ["tokenization_evil.EvilTokenizer", None]},
            }
        )
    )
    try:
        tokenizer = load_tokenizer(load(folder))
    except ModelError as error:
        assert "\n" not in str(error) and "tokenizer" in str(error)
    else:
        assert type(tokenizer).__name__ != "EvilTokenizer"
    assert not touched.exists()


# packed and partial checkpoints ------------------------------------------------------------


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


# no network --------------------------------------------------------------------------------

OFFLINE_SCRIPT = """
import socket, sys
def refuse(*args, **kwargs):
    raise RuntimeError("a connection was tried")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from embspace.errors import ModelError
from embspace.models.certify import certify
from embspace.models.load import load
model = load(sys.argv[1])
assert model.vocabulary.labels and certify(model, layers="first").passed
try:
    load("no-such-owner/no-such-model")
except ModelError as error:
    print(error)
"""


def test_local_folders_open_no_connection_and_an_unknown_name_fails_in_one_line(tiny_gpt2):
    import os

    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE_SCRIPT, str(tiny_gpt2)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "'no-such-owner/no-such-model' is no local folder" in done.stdout
    assert done.stdout.count("\n") == 1


def test_loading_certifying_and_tokenizers_open_no_socket(tiny_llama, monkeypatch):
    monkeypatch.setattr(socket, "socket", lambda *a, **k: pytest.fail("opened a socket"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: pytest.fail("looked up a name"))
    model = load(tiny_llama)
    assert len(model.vocabulary.labels) == 300
    assert certify(model).passed


# gguf --------------------------------------------------------------------------------------


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


def test_a_gguf_file_equals_its_safetensors_twin(save_model, tmp_path, monkeypatch):
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
    twin, model = load(folder), load(file)
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


# laziness ----------------------------------------------------------------------------------


def test_reading_one_head_touches_the_bytes_of_its_matrices_only(sharded):
    model = load(sharded)
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
from embspace.models.load import load
load(sys.argv[1]).attention(0).W_Q.sum()  # imports and buffers are there
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = load(sys.argv[2])
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
