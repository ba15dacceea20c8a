"""Image-text models: the text part is proved with the head that they themselves use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from embspace.errors import ModelError
from embspace.live import findings
from embspace.live import rebuilt as replay
from embspace.live.certificate import certify
from embspace.live.direction import block_outputs
from embspace.live.running import run
from embspace.read.reader import load
from embspace.text.passages import Encoder

from .zoo import GROUPED, KINDS, OWN_HEAD, gemma3_with_vision, randomised

VISION: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "image_size": 8,
    "patch_size": 4,
}
COHERE: dict[str, Any] = {
    **OWN_HEAD,
    "sliding_window": 4,
    "layer_types": KINDS,
    "logit_scale": 0.0625,
}
GRANITE: dict[str, Any] = {**GROUPED, "logits_scaling": 5.0, "embedding_multiplier": 3.0}


def _with_vision(name: str, text: Any) -> Callable[[], Any]:
    def build() -> Any:
        config = getattr(hf, f"{name}Config")(
            text_config=text, vision_config=hf.SiglipVisionConfig(**VISION), image_token_id=300
        )
        return getattr(hf, f"{name}ForConditionalGeneration")(config)

    return build


MODELS: dict[str, Callable[[], Any]] = {
    "Aya Vision leaves out Cohere's scale": _with_vision("AyaVision", hf.Cohere2Config(**COHERE)),
    "LLaVA-NeXT leaves out Granite's": _with_vision("LlavaNext", hf.GraniteConfig(**GRANITE)),
    "Cohere 2 Vision": _with_vision("Cohere2Vision", hf.Cohere2Config(**COHERE)),
    "Gemma 3 leaves out the cap": lambda: gemma3_with_vision(final_logit_softcapping=3.0),
    "LLaVA on Llama": _with_vision("Llava", hf.LlamaConfig(**GROUPED)),
}


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], tuple[Any, Path]]:
    """A live image-text model and the folder that it is saved in."""

    def make(name: str) -> tuple[Any, Path]:
        torch.manual_seed(0)
        live = randomised(MODELS[name]()).eval()
        live.save_pretrained(tmp_path)
        return live, tmp_path

    return make


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_those_of_the_models_own_head(made, name: str):
    live, folder = made(name)
    ids = torch.arange(12).reshape(2, 6) + 20
    with torch.no_grad():
        true = live(input_ids=ids).logits.softmax(-1)
    model = load(folder)
    last = block_outputs(run(model), ids)[-1]
    assert torch.allclose(replay.logits(model, last).softmax(-1), true, atol=1e-5)
    logits = next(claim for claim in certify(model).claims if claim.what == findings.LOGITS)
    assert logits.error is not None and logits.passed


def test_a_head_that_cannot_be_run_is_not_used_and_said_to_be_unproved(made, monkeypatch):
    monkeypatch.setattr("embspace.live.running.HEADED", {True: (), False: ()})
    _, folder = made("Aya Vision leaves out Cohere's scale")
    model = load(folder)
    assert not model.has_head
    assert any("head is not proved (transformers has no class" in note for note in model.notes)


def test_a_known_models_head_without_a_class_to_prove_it_fails_the_certificate(saved, monkeypatch):
    monkeypatch.setattr("embspace.live.running.HEADED", {True: (), False: ()})
    (failure,) = certify(load(saved("llama"))).failures
    assert failure.what == findings.LOGITS and "no class with a prediction head" in failure.note


def test_paligemma_is_read_whose_positions_start_at_one_and_whose_texts_are_refused(tmp_path):
    torch.manual_seed(0)
    config = hf.PaliGemmaConfig(
        text_config=hf.GemmaConfig(**OWN_HEAD, pad_token_id=0),
        vision_config=hf.SiglipVisionConfig(**VISION),
        projection_dim=48,
        image_token_index=300,
    )
    randomised(hf.PaliGemmaForConditionalGeneration(config)).save_pretrained(tmp_path)
    model = load(tmp_path)
    assert certify(model).passed
    # its prompt sees both ways, or only back, as transformers' attention is chosen
    with pytest.raises(ModelError, match=r"looks both ways .* only its weights are read"):
        Encoder(model)
