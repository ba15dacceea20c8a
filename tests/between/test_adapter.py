"""Changes of LoRA adapters against the merged model's own differences."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import embspace
from embspace.between.adapter import changes_of, is_adapter
from embspace.between.layer_vectors import groups_of, pieces
from embspace.errors import EmbspaceError, ModelError

RANK, ALPHA = 3, 6
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "fan_in_fan_out": False}


def write(folder: Path, tensors: dict[str, torch.Tensor], **config: object) -> Path:
    """An adapter as peft writes one."""
    folder.mkdir(exist_ok=True)
    named = {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config), encoding="utf8")
    return folder


def factors(path: str, n_out: int, n_in: int, rank: int = RANK, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return {
        f"{path}.lora_A.weight": torch.randn(rank, n_in, generator=generator),
        f"{path}.lora_B.weight": torch.randn(n_out, rank, generator=generator),
    }


def merged(pair: dict[str, torch.Tensor], path: str, scale: float) -> torch.Tensor:
    return scale * pair[f"{path}.lora_B.weight"] @ pair[f"{path}.lora_A.weight"]


def all_rows(model, group: str) -> torch.Tensor:
    return torch.cat([piece.read() for piece in pieces(model, group)])


def test_changes_of_linear_weights_are_those_of_the_merged_model(tiny_llama, altered, tmp_path):
    paths = {
        "model.layers.0.self_attn.q_proj": (48, 36),
        "model.layers.1.self_attn.v_proj": (16, 36),
        "model.layers.1.mlp.down_proj": (36, 44),
        "model.layers.0.mlp.gate_proj": (44, 36),
    }
    pairs = {path: factors(path, *shape) for path, shape in paths.items()}
    folder = write(tmp_path / "lora", {k: v for pair in pairs.values() for k, v in pair.items()})

    def change(model):
        for path, pair in pairs.items():
            model.get_submodule(path).weight += merged(pair, path, ALPHA / RANK)

    base, tuned = embspace.load(tiny_llama), embspace.load(altered(tiny_llama, change))
    changes, _ = changes_of(folder, base)
    for group in groups_of(base):
        expected = all_rows(tuned, group) - all_rows(base, group)
        assert torch.allclose(all_rows(changes, group), expected, atol=1e-4), group
    found, same = (
        embspace.diff(base, t, words=words_of(base, tmp_path), turns=0) for t in (folder, tuned)
    )
    for one, other in zip(found.layers, same.layers, strict=True):
        assert one.n_moved == other.n_moved and one.norm == pytest.approx(other.norm, rel=1e-3)


def words_of(model, tmp_path: Path) -> Path:
    """A list of words that a small vocabulary has."""
    mask = model.vocabulary.mask("words")
    words = [
        t.strip() for t, keep in zip(model.vocabulary.texts, mask.tolist(), strict=True) if keep
    ]
    path = tmp_path / "words.txt"
    path.write_text("\n".join(words[:6]), encoding="utf8")
    return path


@pytest.mark.parametrize("rslora", [False, True])
def test_stored_the_other_way_round_they_are_turned(tiny_gpt2, tmp_path, rslora):
    path = "transformer.h.1.mlp.c_fc"
    pair = factors(path, 52, 32)
    base = embspace.load(tiny_gpt2)
    folder = write(tmp_path / "lora", pair, fan_in_fan_out=True, use_rslora=rslora)
    changes, adapter = changes_of(folder, base)
    expected = merged(pair, path, ALPHA / (RANK**0.5 if rslora else RANK))
    assert torch.allclose(changes.feed_forward(1).keys["up"], expected, atol=1e-5)
    assert not changes.feed_forward(0).keys["up"].any()
    assert adapter.changed == [f"{path}.weight"] and len(adapter.fingerprint) == 16


def test_ranks_and_scales_set_for_single_modules_hold(tiny_llama, tmp_path):
    path = "model.layers.0.self_attn.o_proj"
    pair = factors(path, 36, 48, rank=2)
    patterns = {"rank_pattern": {"o_proj": 2}, "alpha_pattern": {"o_proj": 10}}
    base = embspace.load(tiny_llama)
    changes, _ = changes_of(write(tmp_path / "lora", pair, **patterns), base)
    found = changes.attention(0).W_O.reshape(48, 36)
    assert torch.allclose(found, merged(pair, path, 5.0).T, atol=1e-5)


def test_an_adapter_without_the_prefix_of_the_base_is_understood(tiny_llama, tmp_path):
    pair = factors("layers.0.self_attn.q_proj", 48, 36)
    changes, _ = changes_of(write(tmp_path / "lora", pair), embspace.load(tiny_llama))
    assert changes.attention(0).W_Q.any()


def test_only_a_folder_with_an_adapter_alone_is_one(tiny_gpt2, tmp_path):
    folder = write(tmp_path / "lora", factors("transformer.h.0.attn.c_proj", 32, 32))
    assert is_adapter(folder) and not is_adapter(tiny_gpt2) and not is_adapter("gpt2")


Q = "model.layers.0.self_attn.q_proj"
HOSTILE = [
    ({"init_lora_weights": "pissa"}, factors(Q, 48, 36), "init_lora_weights pissa"),
    ({"init_lora_weights": "pissa_niter_16"}, factors(Q, 48, 36), "init_lora_weights pissa_niter"),
    ({"init_lora_weights": "olora"}, factors(Q, 48, 36), "init_lora_weights olora"),
    ({"init_lora_weights": "corda"}, factors(Q, 48, 36), "init_lora_weights corda"),
    ({"init_lora_weights": "loftq"}, factors(Q, 48, 36), "init_lora_weights loftq"),
    ({"init_lora_weights": 1}, factors(Q, 48, 36), "init_lora_weights 1"),
    ({"layer_replication": [[0, 2], [1, 2]]}, factors(Q, 48, 36), "layer_replication .*repeats"),
    ({"bias": "lora_only"}, factors(Q, 48, 36), "bias lora_only"),
    ({"modules_to_save": ["lm_head"]}, factors(Q, 48, 36), "modules_to_save"),
    ({"target_parameters": ["mlp.experts"]}, factors(Q, 48, 36), "target_parameters"),
    ({"trainable_token_indices": [3]}, factors(Q, 48, 36), "trainable_token_indices"),
    ({"lora_bias": True}, factors(Q, 48, 36), "lora_bias True"),
    ({"use_new_thing": 0.5}, factors(Q, 48, 36), "use_new_thing 0.5, which is not known"),
    ({"rank_pattern": {"q_proj(": 3}}, factors(Q, 48, 36), "rank_pattern has 'q_proj\\('"),
    ({"alpha_pattern": ["q_proj"]}, factors(Q, 48, 36), "alpha_pattern is"),
    ({"fan_in_fan_out": True}, factors(Q, 48, 36), "fan_in_fan_out true.*\\(out, in\\)"),
    ({"peft_type": "IA3"}, factors(Q, 48, 36), "of kind IA3"),
    ({"peft_type": None}, factors(Q, 48, 36), "of kind None"),
    ({"use_dora": True}, factors(Q, 48, 36), "use_dora"),
    ({}, {f"{Q}.lora_magnitude_vector.weight": torch.ones(48)}, "no factor of a LoRA"),
    ({}, {"model.embed_tokens.lora_embedding_A": torch.ones(3, 300)}, "no factor of a LoRA"),
    ({}, {"classifier.weight": torch.ones(2, 36)}, "no factor of a LoRA"),
    ({}, {f"{Q}.lora_A.weight": torch.ones(3, 36)}, "without the other"),
    ({}, factors("model.layers.7.self_attn.q_proj", 48, 36), "has not"),
    ({}, factors(Q, 40, 36), r"\(40, 36\)"),
    ({}, factors(Q, 48, 36, rank=5), "do not fit"),
    ({"lora_alpha": "six"}, factors(Q, 48, 36), "do not fit"),
    ({"lora_alpha": None}, factors(Q, 48, 36), "do not fit"),
]


def test_a_flag_against_the_layer_is_refused_where_shapes_cannot_tell(tiny_gpt2, tmp_path):
    square = factors("transformer.h.0.attn.c_proj", 32, 32)
    base = embspace.load(tiny_gpt2)
    changes_of(write(tmp_path / "right", square, fan_in_fan_out=True), base)
    with pytest.raises(ModelError, match=r"fan_in_fan_out false.*\(in, out\)"):
        changes_of(write(tmp_path / "wrong", square, fan_in_fan_out=False), base)


@pytest.mark.parametrize("start", [None, True, False, "gaussian", "eva", "orthogonal"], ids=str)
def test_starts_that_leave_the_base_alone_are_read(tiny_llama, tmp_path, start):
    pair = factors(Q, 48, 36)
    quiet = {"bias": "none", "loftq_config": {}, "layer_replication": None, "use_dora": False}
    quiet |= {"eva_config": {"rho": 2.0}, "modules_to_save": [], "inference_mode": True}
    folder = write(tmp_path / "lora", pair, init_lora_weights=start, **quiet)
    changes, _ = changes_of(folder, embspace.load(tiny_llama))
    found = changes.attention(0).W_Q.permute(0, 2, 1).reshape(48, 36)
    assert torch.allclose(found, merged(pair, Q, ALPHA / RANK), atol=1e-5)


def test_one_weight_changed_under_two_names_is_refused(tiny_llama, tmp_path):
    pairs = factors(Q, 48, 36) | factors(Q.removeprefix("model."), 48, 36)
    with pytest.raises(ModelError, match="twice"):
        changes_of(write(tmp_path / "lora", pairs), embspace.load(tiny_llama))


@pytest.mark.parametrize(("config", "tensors", "said"), HOSTILE, ids=lambda x: str(x)[:40])
def test_other_kinds_are_refused_in_one_sentence(tiny_llama, tmp_path, config, tensors, said):
    folder = write(tmp_path / "lora", tensors, **config)
    with pytest.raises(ModelError, match=said) as caught:
        changes_of(folder, embspace.load(tiny_llama))
    assert "\n" not in str(caught.value)


def test_damaged_and_pickled_adapters_are_refused(tiny_llama, tmp_path):
    base = embspace.load(tiny_llama)
    folder = write(tmp_path / "lora", factors(Q, 48, 36))
    tensors = folder / "adapter_model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-10])
    with pytest.raises(ModelError, match="short"):
        changes_of(folder, base)
    tensors.rename(folder / "adapter_model.bin")
    with pytest.raises(ModelError, match="pickled adapters are not read"):
        changes_of(folder, base)
    (folder / "adapter_config.json").write_text("[", encoding="utf8")
    with pytest.raises(EmbspaceError, match="JSON"):
        changes_of(folder, base)
