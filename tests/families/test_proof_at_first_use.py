"""From Python too, the first number asked for proves the reading, or takes its kept proof."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from embspace.errors import CannotRunError, CertificateError, ModelError
from embspace.live import running
from embspace.maps.lens import lens
from embspace.read.reader import load
from embspace.weights.model import Model
from embspace.weights.registry import BY_TYPE


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which no proof is kept yet."""
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def changed(saved, tmp_path: Path) -> Callable[..., Path]:
    """A model of the zoo whose file holds its tensors by other names, or lacks some."""

    def make(name: str, rename: Callable[[str], str | None]) -> Path:
        folder = Path(shutil.copytree(saved(name), tmp_path / "changed"))
        stored = load_file(folder / "model.safetensors")
        named = ((rename(key), tensor) for key, tensor in stored.items())
        stored = {key: tensor for key, tensor in named if key}
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


FIRST: dict[str, Callable[[Model], Any]] = {
    "a matrix": lambda model: model.attention(1).W_V,
    "a feed-forward layer": lambda model: model.feed_forward(2).values,
    "the embedding": lambda model: model.embedding(),
    "the input embedding": lambda model: model.embedding("input"),
    "a gain": lambda model: model.reading_gain(1, "ff"),
    "the final gain": lambda model: model.final_gain(),
    "the vocabulary": lambda model: model.vocabulary,
    "the live model": lambda model: running.run(model),
}


def _as_gamma(name: str) -> str:
    in_norm = re.search(r"(ln_|norm)[^.]*\.(weight|bias)$", name)
    return re.sub("weight$", "gamma", re.sub("bias$", "beta", name)) if in_norm else name


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", ["gpt2", "opt", "bloom"])
def test_norms_stored_as_gamma_and_beta_are_an_error_at_the_first_number(changed, name, first):
    model = load(changed(name, _as_gamma))
    with pytest.raises(ModelError, match=r"lacks .*\(it holds .*(gamma|beta), which is not read"):
        FIRST[first](model)


@pytest.mark.parametrize("first", FIRST)
def test_an_absent_norm_weight_is_an_error_and_no_gain_of_one(changed, first):
    model = load(changed("llama", lambda name: None if name == "model.norm.weight" else name))
    with pytest.raises(ModelError, match=r"lacks model\.norm\.weight, which its config asks for"):
        FIRST[first](model)
    with pytest.raises(ModelError, match=r"lacks model\.norm\.weight"):  # and again
        FIRST[first](model)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_what_a_later_block_lacks_is_found_without_a_forward_pass(changed, name, monkeypatch):
    lost = {"gpt2": "transformer.h.2.ln_1.weight", "llama": "model.layers.2.input_layernorm.weight"}
    folder = changed(name, lambda key: None if key == lost[name] else key)
    monkeypatch.setattr("embspace.live.certificate.check", lambda *a, **k: pytest.fail("ran"))
    with pytest.raises(ModelError, match=f"lacks {re.escape(lost[name])}"):
        load(folder).require_proof()


@pytest.mark.parametrize(
    "extra",
    [
        "model.layers.1.self_attn.q_proj.lora_A.weight",
        "model.layers.1.self_attn.q_proj.lora_magnitude_vector",
        "model.embed_tokens.lora_embedding_A",
        "lm_head.lora_B.weight",
        "model.layers.2.mlp.up_proj.ia3_l",
    ],
)
def test_adapter_tensors_among_the_weights_are_an_error(changed, extra: str):
    folder = changed("llama", lambda name: name)
    stored = load_file(folder / "model.safetensors") | {extra: torch.ones(2, 2)}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"holds {re.escape(extra)}, for which"):
        load(folder).require_proof()


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_model.bin"])
def test_an_adapter_file_beside_a_model_is_an_error_without_its_config(changed, file: str):
    folder = changed("llama", lambda name: name)
    (folder / file).write_bytes(b"")
    with pytest.raises(ModelError, match=rf"an adapter \({re.escape(file)}\): which is meant"):
        load(folder)


@pytest.mark.parametrize("changes", [{"attn_norm": "no_such"}, {"final_norm": "no_such"}], ids=str)
def test_paths_given_by_hand_are_proved_before_any_number(saved, tiny_llama, changes):
    family = replace(BY_TYPE["llama"], **changes)
    with pytest.raises(CertificateError, match=r"no_such|final norm"):
        load(saved("llama"), family=family).reading_gain(0, "attn")
    with pytest.raises(CertificateError, match=r"no_such|final norm"):
        lens(load(tiny_llama, family=family), "the cats", "id")


def test_a_proof_is_kept_and_taken_without_the_live_model(saved, nothing_kept, monkeypatch):
    load(saved("llama")).weight("model.norm.weight")
    assert len(list(nothing_kept.rglob("*.json"))) == 1
    monkeypatch.setattr("embspace.live.certificate.require_whole", lambda m: pytest.fail("looked"))
    monkeypatch.setattr("embspace.live.certificate.check", lambda *a, **k: pytest.fail("ran"))
    load(saved("llama")).weight("model.norm.weight")


LIVE = """
import sys
from embspace.read.reader import load
model = load(sys.argv[1])
model.attention(0).W_Q, model.embedding(), model.final_gain(), model.notes
print([m for m in sys.modules if "modeling_llama" in m or m == "transformers.modeling_utils"])
"""


def test_reading_weights_of_a_proved_model_imports_no_live_class(saved):
    load(saved("llama")).require_proof()
    command = [sys.executable, "-c", LIVE, str(saved("llama"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


BARE = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "accelerate" else find(name, *rest)
from transformers.utils import is_accelerate_available
assert not is_accelerate_available()
import embspace
embspace.load(sys.argv[1]).require_proof()
assert embspace.certify(embspace.load(sys.argv[1])).passed
"""


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "gemma3 with vision"])
def test_a_proof_needs_no_accelerate(saved, name: str):
    command = [sys.executable, "-c", BARE, str(saved(name))]
    subprocess.run(command, capture_output=True, text=True, check=True)


def test_opening_alone_proves_nothing(saved, nothing_kept, monkeypatch):
    monkeypatch.setattr("embspace.live.certificate.verdict", lambda m: pytest.fail("proved"))
    model = load(saved("llama"))
    assert (model.d, model.n_heads, model.has_head) == (48, 6, True)
    assert model.notes and model.provenance


def test_a_reading_without_proof_is_asked_for(changed):
    folder = changed("llama", lambda name: None if name == "model.norm.weight" else name)
    assert load(folder, check=False).attention(0).W_Q.shape == (6, 48, 10)


def test_where_no_forward_pass_is_possible_a_warning_says_so(saved, monkeypatch):
    def refuse(*a: Any, **k: Any) -> None:
        raise CannotRunError("there is no class.")

    monkeypatch.setattr("embspace.live.certificate.require_whole", refuse)
    model = load(saved("llama"))
    with pytest.warns(UserWarning, match="read without proof, because .*: there is no class"):
        assert model.attention(0).W_Q.shape == (6, 48, 10)
    assert model.attention(1).W_Q.shape == (6, 48, 10)  # said once
