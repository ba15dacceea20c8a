"""An architecture no entry knows is read by its shape, and only where its certificate passes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from embspace.errors import ModelError
from embspace.live.certificate import certify
from embspace.read.reader import load
from embspace.weights.registry import BY_TYPE, GENERIC

from .zoo import BERT, GPT, GROUPED, OWN_HEAD, randomised


def _made_up(name: str, config: type, model: type, **changes: Any) -> tuple[type, type]:
    """An architecture of its own name that computes as its parent does, but for `changes`."""
    own_config = type(
        f"{name}Config", (config,), {"model_type": name.lower(), "__module__": __name__}
    )
    own_model = type(
        f"{name}ForCausalLM",
        (model,),
        {"config_class": own_config, "__module__": __name__, **changes},
    )
    return own_config, own_model


@pytest.fixture
def register(tmp_path: Path) -> Callable[..., Path]:
    """Register a made-up architecture for one test and save a random model of it."""

    def save(name: str, config: type, model: type, options: dict[str, Any], **changes: Any) -> Path:
        own_config, own_model = _made_up(name, config, model, **changes)
        hf.AutoConfig.register(own_config.model_type, own_config)
        hf.AutoModelForCausalLM.register(own_config, own_model)
        torch.manual_seed(0)
        randomised(own_model(own_config(**options))).save_pretrained(tmp_path)
        return tmp_path

    return save


def test_a_conforming_architecture_is_read_and_certified(register, monkeypatch):
    folder = register("Alpaca", hf.LlamaConfig, hf.LlamaForCausalLM, OWN_HEAD)
    model = load(folder)
    assert model.config.model_type == "alpaca" and model.family.generic
    twin = load(folder, family=BY_TYPE["llama"])
    assert torch.equal(model.attention(1).W_K, twin.attention(1).W_K)
    # remembered: the second load runs no model
    monkeypatch.setattr("embspace.live.certificate.run", lambda *a, **k: pytest.fail("ran again"))
    assert load(folder).family == model.family


def test_a_conforming_architecture_of_another_shape_is_read_too(register):
    options = {**GPT, "scale_attn_by_inverse_layer_idx": True}
    folder = register("Vicuna", hf.GPT2Config, hf.GPT2LMHeadModel, options)
    model = load(folder)
    assert model.family.generic and certify(model).passed


def _forward_doubled(self, *args: Any, **kwargs: Any) -> Any:
    """Llama with every attention output doubled: the shapes of Llama, another computation."""
    handles = [
        layer.self_attn.register_forward_hook(lambda m, a, out: (2 * out[0], out[1]))
        for layer in self.model.layers
    ]
    try:
        return hf.LlamaForCausalLM.forward(self, *args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()


def test_an_architecture_of_the_right_shape_but_another_arithmetic_is_refused(register):
    folder = register(
        "Guanaco", hf.LlamaConfig, hf.LlamaForCausalLM, OWN_HEAD, forward=_forward_doubled
    )
    with pytest.raises(ModelError) as caught:
        load(folder)
    message = str(caught.value)
    assert "'guanaco'" in message and "residual stream: off by" in message
    assert "family=Family(" in message


def test_an_architecture_of_another_shape_is_refused_naming_what_was_looked_for(register):
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
    folder = register("Camel", hf.MambaConfig, hf.MambaForCausalLM, sizes)
    with pytest.raises(ModelError) as caught:
        load(folder)
    message = str(caught.value)
    assert "'camel'" in message and "looked for model.embed_tokens.weight" in message
    assert "family=Family(" in message


BY_SHAPE = {
    "Helium": {**GROUPED, "head_dim": 8},
    "Arcee": GROUPED,
    "Ernie4_5": OWN_HEAD,
    "Olmoe": {**GROUPED, "num_experts": 5, "num_experts_per_tok": 2},
}


@pytest.mark.parametrize("name", BY_SHAPE)
def test_real_architectures_without_an_entry_are_read_by_their_shape(tmp_path, name: str):
    torch.manual_seed(0)
    config = getattr(hf, f"{name}Config")(**BY_SHAPE[name], pad_token_id=0)
    randomised(getattr(hf, f"{name}ForCausalLM")(config)).save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.family.generic and certify(model).passed
    assert any("read by its shape" in note for note in model.notes)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("RoFormer", "attention pattern: off by"),  # BERT's names, but it turns its queries
        ("Yoso", "attention pattern: cannot be compared"),  # BERT's names, no softmax
        ("Nystromformer", "attention (output|pattern): off by"),  # BERT's names, approximated
    ],
)
def test_real_architectures_that_only_look_like_a_known_one_are_refused(tmp_path, name, reason):
    torch.manual_seed(0)
    config = getattr(hf, f"{name}Config")(**BERT, embedding_size=48)
    randomised(getattr(hf, f"{name}ForMaskedLM")(config)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=reason):
        load(tmp_path)


def test_paths_given_by_hand_are_used_as_given(register):
    folder = register("Dromedary", hf.LlamaConfig, hf.LlamaForCausalLM, OWN_HEAD)
    family = replace(BY_TYPE["llama"], types=("dromedary",))
    model = load(folder, family=family)
    assert model.family == family and certify(model).passed


def test_every_generic_shape_is_marked_and_needs_a_certificate():
    assert all(family.generic and not family.types for family in GENERIC)
    assert not any(family.generic for family in BY_TYPE.values())


@pytest.mark.parametrize("name", ["Data2VecText", "IBert"])
def test_an_encoder_of_roberta_shape_has_its_own_head_and_its_longest_text(tmp_path, name: str):
    torch.manual_seed(0)
    config = getattr(hf, f"{name}Config")(**{**BERT, "pad_token_id": 3})
    live = randomised(getattr(hf, f"{name}ForMaskedLM")(config)).eval()
    live.save_pretrained(tmp_path)
    model = load(tmp_path)
    certificate = certify(model)
    (logits,) = (claim for claim in certificate.claims if claim.what == "logits")
    assert model.has_head and certificate.passed and logits.error is not None
    assert not any("no prediction head" in note for note in model.notes)
    # positions count from the padding id + 1
    assert model.n_positions == config.max_position_embeddings - 4 == 60
    live(input_ids=torch.full((1, 60), 7))
    with pytest.raises((IndexError, RuntimeError)):
        live(input_ids=torch.full((1, 61), 7))


def test_an_encoder_of_known_body_and_another_known_head_is_read_with_that_head(tmp_path):
    """BERT's blocks under RoBERTa's head: what is known of one head is not tied to one body."""
    torch.manual_seed(0)
    config = hf.CamembertConfig(**BERT)
    randomised(hf.CamembertForMaskedLM(config)).save_pretrained(tmp_path)
    shape = replace(BY_TYPE["bert"], types=(), generic=True)
    model = load(tmp_path, family=shape)
    assert model.family.transform == BY_TYPE["camembert"].transform
    assert certify(model).passed


def test_mpnet_counts_positions_from_one_whatever_its_padding_id(tmp_path):
    torch.manual_seed(0)
    live = randomised(hf.MPNetForMaskedLM(hf.MPNetConfig(**{**BERT, "pad_token_id": 0}))).eval()
    live.save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.n_positions == 62
    live(input_ids=torch.full((1, 62), 7))
    with pytest.raises((IndexError, RuntimeError)):
        live(input_ids=torch.full((1, 63), 7))
