"""Masked models through the lens: every mask of a prompt in one pass, the whole prediction head."""

import warnings

import pytest
import torch

import embspace
from embspace.errors import ModelError, TextError

PROMPT = "The capital of [MASK] is [MASK], and its people [MASK] it."


@pytest.fixture(scope="module")
def model():
    return embspace.load("sample-bert-a")


def test_all_masks_are_decoded_as_the_live_model_fills_them(model):
    from transformers import AutoModelForMaskedLM

    found = embspace.lens(model, PROMPT, "id", positions="masks", k=20)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        live = AutoModelForMaskedLM.from_pretrained(model.folder, dtype=torch.float32).eval()
        logits = live(torch.tensor([list(found.ids)])).logits[0, :, : len(model.vocabulary)]
    assert len(found.places) == 3 and all(place.masked for place in found.places)
    at = [place.index for place in found.places]
    grid = found.grids["id"]
    p = logits.softmax(-1)[at].topk(20)
    assert torch.allclose(grid.p[-1], p.values, atol=1e-5)
    assert [place.answer for place in found.places] == p.indices[:, 0].tolist()


def test_special_tokens_come_once_or_not_at_all(model):
    tokenizer = model.vocabulary.tokenizer
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    text = "The capital is [MASK]."
    with_them = embspace.lens(model, text, "id", layers=[6]).ids
    without = embspace.lens(model, text, "id", layers=[6], special=False).ids
    typed = embspace.lens(model, f"[CLS]{text}[SEP]", "id", layers=[6]).ids
    assert with_them == (cls, *without, sep) and typed == with_them


def test_a_masked_model_generates_no_text(model):
    with pytest.raises(ModelError, match="masked"):
        embspace.lens(model, PROMPT, "id", generate=2)


def test_a_prompt_without_a_mask_has_no_masks_to_show(model):
    with pytest.raises(TextError, match="MASK"):
        embspace.lens(model, "no mask here", "id", positions="masks")


def test_the_default_prompt_has_a_mask(model):
    assert any(place.masked for place in embspace.lens(model, None, "id", layers=[6]).places)


def test_inside_a_post_norm_block_is_what_its_feed_forward_reads(model):
    from embspace.live.running import run

    found = embspace.lens(model, PROMPT, "id", inside=True, layers=[2], k=4)
    running = run(model)
    kept = []
    module = running.part(2, model.family.up)
    assert module is not None
    module.register_forward_pre_hook(lambda m, args: kept.append(args[0][0]))
    with torch.no_grad():
        running.module(torch.tensor([list(found.ids)]))
        z = running.module.cls(kept[0])
    grid = found.grids["id"]
    assert grid.rows == ("2", "2.mid") and torch.equal(grid.ids[1], z.topk(4).indices)
