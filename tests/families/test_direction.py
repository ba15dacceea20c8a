"""Which way a model's blocks look is found on the live model, and its reading says the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from embspace.errors import CertificateError
from embspace.live import direction as plain
from embspace.live import findings
from embspace.live.certificate import certify, require
from embspace.live.running import run
from embspace.live.tape import Tape
from embspace.read.reader import load
from embspace.weights.registry import BY_TYPE

from .zoo import GEMMA23, TEXT, ZOO, randomised

EURO: dict[str, Any] = {
    **TEXT,
    "pad_token_id": 0,
    "mask_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
BIDIRECTIONAL = {"roberta", "xlm-roberta", "mpnet", *(n for n in ZOO if "bert" in n)}
BIDIRECTIONAL |= {name for name in ZOO if name.startswith(("albert", "electra"))}


@pytest.fixture
def save(tmp_path: Path) -> Callable[[Any], Path]:
    """A random model with every gain and bias made random, in a folder."""

    def saved(model: Any) -> Path:
        randomised(model).save_pretrained(tmp_path)
        return tmp_path

    return saved


@pytest.mark.parametrize("name", ZOO)
def test_a_changed_last_token_moves_earlier_states_of_encoders_alone(saved, name: str):
    model = load(saved(name))
    running = run(model)
    ids = torch.arange(14).reshape(2, 7) + 20
    other = ids.clone()
    other[:, -1] = 50
    pairs = zip(plain.block_outputs(running, ids), plain.block_outputs(running, other), strict=True)
    moved = max(float((a - b)[:, :-1].abs().max()) for a, b in pairs)
    assert (moved > 0.01) == (name in BIDIRECTIONAL)
    assert model.family.causal == (name not in BIDIRECTIONAL)


def test_eurobert_is_read_as_the_masked_encoder_that_it_is(save):
    torch.manual_seed(0)
    live = hf.EuroBertForMaskedLM(hf.EuroBertConfig(**EURO))
    model = load(save(live))
    assert not model.family.causal and model.has_head
    certificate = certify(model)
    assert certificate.passed
    logits = next(c for c in certificate.claims if c.what == findings.LOGITS)
    assert logits.error is not None and logits.error < 1e-5


def test_eurobert_by_llamas_paths_is_refused(save):
    """The first state moves by nine tenths of the largest value with the last token."""
    torch.manual_seed(0)
    folder = save(hf.EuroBertForMaskedLM(hf.EuroBertConfig(**EURO)))
    model = load(folder, family=replace(BY_TYPE["llama"], types=("eurobert",)))
    with pytest.raises(CertificateError, match="direction: read as a causal decoder, but earlier"):
        model.reading_gain(0, "attn")


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("LlamaForCausalLM", {"is_causal": False}),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}),
    ],
)
def test_a_decoder_whose_tokens_see_the_later_ones_is_read_as_such(save, model: str, config: dict):
    torch.manual_seed(0)
    kind = hf.LlamaConfig(**TEXT) if "Llama" in model else hf.Gemma3TextConfig(**GEMMA23)
    for name, value in config.items():
        setattr(kind, name, value)
    read = load(save(getattr(hf, model)(kind)))
    assert read.family.both_ways and certify(read).passed


def test_a_config_that_says_both_ways_of_a_model_that_looks_one_way_is_not_believed(save):
    torch.manual_seed(0)
    config = hf.GPT2Config(vocab_size=60, n_embd=24, n_layer=2, n_head=3, initializer_range=0.5)
    config.use_bidirectional_attention = True
    model = load(save(hf.GPT2LMHeadModel(config)))
    assert not model.family.both_ways
    require(model)


@pytest.mark.parametrize("name", ["falcon alibi", "bloom", "gpt-neo", "gemma2", "albert"])
def test_what_is_recorded_is_what_the_model_computes_unwatched(saved, name: str):
    running = run(load(saved(name)))
    ids = torch.arange(20).reshape(2, 10) + 20
    recorded: list[torch.Tensor] = []
    Tape(running, lambda record: recorded.append(record.state_out)).forward(ids)
    for ours, true in zip(recorded, plain.block_outputs(running, ids), strict=True):
        assert float((ours - true).abs().max() / true.abs().max()) < 1e-5


def test_a_recorder_that_changes_what_it_records_fails_the_certificate(saved, monkeypatch):
    """Falcon's own plain code adds the position bias of its mask a second time: off by .037."""
    monkeypatch.setattr("embspace.live.tape._without_alibi", lambda module, args, kwargs: None)
    (failure,) = certify(load(saved("falcon alibi"))).failures
    assert failure.what == findings.RECORDED
    assert failure.error is not None and failure.error > 0.01
