"""What is refused is refused with a sentence that is true of the file."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from embspace.errors import EmbspaceError, ModelError
from embspace.live.certificate import certify
from embspace.maps.inside_block import parts_inside
from embspace.read.reader import load
from embspace.weights.registry import BY_TYPE

from .zoo import BERT, GROUPED, TEXT, randomised

ESM = {**BERT, "mask_token_id": 5}
GEMMA3N = {
    **{k: v for k, v in GROUPED.items() if k not in ("num_hidden_layers",)},
    **{"num_hidden_layers": 4, "vocab_size_per_layer_input": 307, "head_dim": 8},
    **{"hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0, "laurel_rank": 4},
    **{"altup_num_inputs": 2, "activation_sparsity_pattern": [0.0] * 4},
    "layer_types": ["full_attention"] * 4,
}


def _masked(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(hf, f"{name}ForMaskedLM")(getattr(hf, f"{name}Config")(**options))


UNKNOWN: dict[str, tuple[Callable[[], Any], str, tuple[str, ...]]] = {
    "a table with a part for every block": (
        _masked("Esm", **ESM),
        "names no activation",
        ("contact_head",),
    ),
    "a table of every block's embeddings": (
        lambda: hf.Gemma3nForCausalLM(hf.Gemma3nTextConfig(**GEMMA3N)),
        "does not rebuild its own outputs",
        ("embed_tokens_per_layer", "asks for"),
    ),
    "a bias of the last block": (
        lambda: hf.GPTNeoXJapaneseForCausalLM(
            hf.GPTNeoXJapaneseConfig(**TEXT, intermediate_multiple_size=2)
        ),
        "does not rebuild its own outputs: residual stream: .* at layer 2",
        ("lacks", "dense_bias"),
    ),
    "one matrix for queries, keys and values": (
        _masked("Deberta", **BERT),
        r"it holds .*attention\.self\.in_proj\.weight.*, where the nearest",
        ("should have",),
    ),
    "blocks of another name": (
        _masked("NomicBert", **BERT),
        r"it holds nomic_bert\.encoder\.layers\.0\.attn\.Wqkv\.weight.*, where the nearest",
        ("should have",),
    ),
    "the same of Jina": (
        _masked("JinaEmbeddingsV3", **BERT),
        r"it holds roberta\.encoder\.layers\.0\.mixer\.Wqkv\.weight.*, where the nearest",
        ("should have",),
    ),
    "heads of a width of each layer's own": (
        lambda: hf.Gemma4ForCausalLM(hf.Gemma4TextConfig(**GEMMA3N, global_head_dim=12)),
        "no one head_dim",
        (),
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_architecture_is_told_by_what_its_own_file_holds(tmp_path, name: str):
    build, expected, absent = UNKNOWN[name]
    torch.manual_seed(0)
    randomised(build()).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=expected) as told:
        load(tmp_path)
    assert not any(word in str(told.value) for word in absent)


@pytest.fixture
def changed(saved, tmp_path: Path) -> Callable[..., Path]:
    """A model of the zoo with other tensors or another config."""

    def make(name: str, tensors: Callable[[dict], dict] | None = None, **config: Any) -> Path:
        folder = Path(shutil.copytree(saved(name), tmp_path / "changed"))
        if tensors:
            stored = tensors(load_file(folder / "model.safetensors"))
            save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        own = json.loads((folder / "config.json").read_text()) | config
        (folder / "config.json").write_text(json.dumps(own))
        return folder

    return make


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("lost", ["transformer.wte.weight", "transformer.h.0.mlp.c_fc.bias"])
def test_a_weight_that_is_no_number_is_named(changed, lost: str, value: float):
    def spoil(stored: dict) -> dict:
        stored[lost].fill_(value)
        return stored

    folder = changed("gpt2", spoil)
    with pytest.raises(ModelError, match=f"{lost} holds NaN or infinity"):
        load(folder).require_proof()


def test_a_missing_matrix_is_named_in_words_that_read(changed):
    lost = "electra.encoder.layer.1.attention.self.query.weight"
    folder = changed("electra", lambda stored: {k: v for k, v in stored.items() if k != lost})
    with pytest.raises(ModelError, match=f"holds no {lost}, which electra models have"):
        load(folder)


def test_an_unknown_type_of_model_is_told_in_a_whole_sentence(changed):
    folder = changed("gpt2", model_type="nonesuch")
    with pytest.raises(ModelError, match=r"does not recognize this architecture\.$"):
        load(folder)


def test_a_setting_of_the_wrong_kind_is_told_whole(changed):
    folder = changed("llama", num_hidden_layers="three")
    with pytest.raises(ModelError, match=r"'num_hidden_layers': \w.*three"):
        load(folder)


def test_a_block_without_its_second_norm_is_not_called_parallel(changed):
    lost = "post_attention_layernorm"
    folder = changed("llama", lambda stored: {k: v for k, v in stored.items() if lost not in k})
    with pytest.raises(EmbspaceError, match=f"lacks .*{lost}.weight, a norm"):
        parts_inside(load(folder, check=False))


def test_a_live_model_of_one_block_is_loaded_whole_where_it_is_no_part_of_the_whole(tmp_path):
    torch.manual_seed(0)
    config = hf.GPTNeoXJapaneseConfig(**TEXT, intermediate_multiple_size=2)
    randomised(hf.GPTNeoXJapaneseForCausalLM(config)).save_pretrained(tmp_path)
    family = replace(
        BY_TYPE["gpt_neox"], types=("gpt_neox_japanese",), base=("gpt_neox_japanese.",)
    )
    certificate = certify(load(tmp_path, family=family, check=False), layers="first")
    assert certificate.layers == (0,) and certificate.n_layers == 3
