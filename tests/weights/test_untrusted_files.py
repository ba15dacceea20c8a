"""Pickles and code beside the weights never run, and local files open no connection."""

import json
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from embspace.errors import ModelError
from embspace.live.certificate import certify
from embspace.read.reader import load
from embspace.weights.tokenizer import load_tokenizer


class _Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


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
    load_tokenizer(model.folder)
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
        tokenizer = load_tokenizer(load(folder).folder)
    except ModelError as error:
        assert "\n" not in str(error) and "tokenizer" in str(error)
    else:
        assert type(tokenizer).__name__ != "EvilTokenizer"
    assert not touched.exists()


OFFLINE_SCRIPT = """
import socket, sys
def refuse(*args, **kwargs):
    raise RuntimeError("a connection was tried")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from embspace.errors import ModelError
from embspace.live.certificate import certify
from embspace.read.reader import load
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


def test_a_sentencepiece_file_alone_names_what_reads_it(tiny_llama, copy, monkeypatch):
    folder = copy(tiny_llama)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"")
    monkeypatch.setattr("embspace.weights.tokenizer.find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"tokenizer\.model.* sentencepiece and protobuf: pip in"
    ) as e:
        load_tokenizer(folder)
    assert "tiktoken" not in str(e.value) and "embspace[sentencepiece]" in str(e.value)


def test_a_sentencepiece_file_alone_is_read(tiny_llama, copy, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    pytest.importorskip("google.protobuf")
    (tmp_path / "text").write_text("The cats and the dogs saw Paris.\nHer brother sings.\n" * 40)
    folder = copy(tiny_llama)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(folder / "tokenizer"), vocab_size=24
    )
    found = load_tokenizer(folder)
    assert found.convert_ids_to_tokens(found("cats")["input_ids"])[0].startswith("▁")


OWN_CONFIG = """
from transformers import LlamaConfig


class OwnConfig(LlamaConfig):
    model_type = "own-llama"
"""
OWN_MODEL = """
from transformers import LlamaForCausalLM

from .configuration_own import OwnConfig


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_code_of_a_folder_that_is_trusted_runs_and_its_reading_is_proved(
    tiny_llama, copy, monkeypatch, tmp_path
):
    """Config and live model are the folder's own; without leave it is refused."""
    import transformers

    monkeypatch.setattr(
        transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    folder = copy(tiny_llama)
    (folder / "configuration_own.py").write_text(OWN_CONFIG)
    (folder / "modeling_own.py").write_text(OWN_MODEL)
    config = json.loads((folder / "config.json").read_text())
    own = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
    }
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "own-llama", "auto_map": own})
    )
    with pytest.raises(ModelError, match="trust_remote_code"):
        load(folder)
    model = load(folder, trust_remote_code=True)
    assert certify(model).passed
    known = load(tiny_llama)
    assert torch.equal(model.attention(0).W_O, known.attention(0).W_O)
