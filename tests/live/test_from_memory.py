"""A live model is read from the folder that it came from, or from a copy made of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

import embspace
from embspace.errors import EmbspaceError, ModelError
from embspace.live.attach import attach


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def module(tiny_llama) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_llama)


def copies(cache: Path) -> list[Path]:
    return sorted((cache / "live").glob("*"))


def moved(module: Any) -> Any:
    with torch.no_grad():
        module.get_output_embeddings().weight[3, 3] += 1.0
    return module


def test_a_live_model_as_it_was_loaded_is_read_from_its_folder(module, tiny_llama, cache):
    model = embspace.load(module)
    assert model.folder == tiny_llama and not copies(cache) and not model._notes
    assert torch.equal(model.embedding(), module.lm_head.weight)
    assert embspace.load(module.to(torch.bfloat16)).folder == tiny_llama  # as loading rounds it


def test_one_that_was_changed_is_read_from_a_copy_made_once(module, cache, tiny_llama):
    model = embspace.load(moved(module))
    (copy,) = copies(cache)
    assert model.folder == copy and str(copy) in model.notes[0]
    assert torch.equal(model.embedding(), module.lm_head.weight)
    assert model.vocabulary.labels == embspace.load(tiny_llama).vocabulary.labels
    assert embspace.certify(model).passed and attach(model, module)
    before = {file: file.stat().st_mtime_ns for file in copy.iterdir()}
    assert embspace.load(module).folder == copy
    assert {file: file.stat().st_mtime_ns for file in copy.iterdir()} == before
    assert embspace.load(moved(module)).folder != copy and len(copies(cache)) == 2


def test_one_of_other_settings_is_read_from_a_copy(module, cache):
    module.config.rms_norm_eps = 0.1
    assert embspace.load(module).config.rms_norm_eps == 0.1 and len(copies(cache)) == 1


def test_one_that_was_never_a_folder_is_read_with_the_tokenizer_given(cache, byte_tokenizer):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=304, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    live = GPT2LMHeadModel(config).train()
    model = embspace.load(live, tokenizer=byte_tokenizer)
    assert len(model.vocabulary) == 300 and model.vocabulary.tokenizer is not None
    stored = load_file(copies(cache)[0] / "model.safetensors")
    assert torch.equal(stored["transformer.wte.weight"], live.transformer.wte.weight)
    assert embspace.load(live).vocabulary.tokenizer is None and len(copies(cache)) == 2
    assert live.training and embspace.certify(model).passed


def test_another_tokenizer_than_the_folders_is_not_lost(module, cache, tmp_path, tiny_llama):
    own = AutoTokenizer.from_pretrained(tiny_llama)
    assert embspace.load(module, tokenizer=own).folder == tiny_llama
    own.add_tokens(["zyzzyva"])
    assert "zyzzyva" in own.get_vocab()
    assert embspace.load(module, tokenizer=own).folder == copies(cache)[0]


def test_a_copy_that_cannot_be_written_is_no_half_a_copy(module, cache, monkeypatch):
    def fails(folder: Path) -> None:
        (Path(folder) / "config.json").write_text("{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(moved(module), "save_pretrained", fails)
    with pytest.raises(EmbspaceError, match="cannot be written: No space left"):
        embspace.load(module)
    assert not copies(cache)


def test_a_cache_that_cannot_be_written_is_told(module, cache):
    cache.write_text("a file where a folder should be")
    with pytest.raises(EmbspaceError, match="cannot be written: Not a directory"):
        embspace.load(moved(module))


def test_what_is_no_whole_transformers_model_is_refused(module, tiny_llama, cache):
    with pytest.raises(ModelError, match="Linear is no transformers model"):
        embspace.load(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="tokenizer is that of a live model"):
        embspace.load(tiny_llama, tokenizer=object())
    with pytest.raises(ModelError, match="no Hub name"):
        embspace.load(module, revision="main")
    with torch.device("meta"):
        empty = GPT2LMHeadModel(GPT2Config(vocab_size=304, n_embd=32, n_layer=2, n_head=4))
    with pytest.raises(ModelError, match="not loaded"):
        embspace.load(empty)
    module.config.quantization_config = {"quant_method": "gptq"}
    with pytest.raises(ModelError, match="quantised"):
        embspace.load(module)
    assert not copies(cache)


def test_a_folder_that_was_overwritten_is_not_taken_for_the_live_model(module, tiny_llama, copy):
    folder = copy(tiny_llama)
    live = AutoModelForCausalLM.from_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"rms_norm_eps": 0.25}
    (folder / "config.json").write_text(json.dumps(config))
    assert embspace.load(live).folder != folder
