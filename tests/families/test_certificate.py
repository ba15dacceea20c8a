"""Every family's matrices rebuild its own forward pass, claim by claim."""

import json
from pathlib import Path

import pytest

from embspace.live import findings
from embspace.live.certificate import certify
from embspace.read.reader import load

from .zoo import ZOO

POST_NORM = {findings.READING, findings.FINAL}
NOT_APPLICABLE = {
    "opt 350m": POST_NORM,
    "opt without final norm": {findings.FINAL},
    "olmo2": {findings.READING},
    "olmo3": {findings.READING},
    "modernbert": {findings.FINAL},
    "mpt": {findings.QKV},
    "mpt scaled": {findings.QKV},
} | {name: POST_NORM for name in ZOO if ("bert" in name or name in ("mpnet", "albert"))}
NOT_APPLICABLE |= {name: POST_NORM for name in ZOO if name.startswith(("albert", "electra"))}
NOT_APPLICABLE["modernbert"] = {findings.FINAL}


@pytest.mark.parametrize("name", ZOO)
def test_every_claim_holds_in_every_block(saved, name: str):
    certificate = certify(load(saved(name)))
    assert certificate.layers == (0, 1, 2)
    assert certificate.dtype == "float32"  # nothing was doubtful enough to be measured again
    for claim in certificate.claims:
        assert claim.passed, claim
        assert claim.error is None or claim.error < 1e-5, claim
    void = {claim.what for claim in certificate.claims if claim.error is None}
    assert void == NOT_APPLICABLE.get(name, set())
    assert all(claim.note for claim in certificate.claims if claim.error is None)
    json.dumps(certificate.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt-neo", "smollm3", "qwen2-moe", "albert", "modernbert"]
)
def test_the_first_block_alone_can_be_certified(saved, name: str):
    certificate = certify(load(saved(name)), layers="first")
    assert certificate.layers == (0,) and certificate.passed
    assert {claim.what for claim in certificate.claims} == set(findings.ROWS)


@pytest.mark.parametrize("name", ["llama", "gemma3", "mixtral"])
def test_the_same_seed_gives_the_same_certificate_and_another_seed_passes_too(saved, name: str):
    model = load(saved(name))
    assert certify(model, seed=3) == certify(model, seed=3)
    assert certify(model, seed=4).passed


@pytest.mark.parametrize("name", ["mixtral", "qwen2-moe", "qwen3-moe"])
def test_experts_stored_one_by_one_and_stacked_are_read_alike(saved, stacked, name: str):
    apart, together = load(saved(name)), load(stacked(name))
    assert any(".experts.0." in n for n in apart.checkpoint.names)
    assert not any(".experts.0." in n for n in together.checkpoint.names)
    assert certify(together).passed
    for layer in range(3):
        assert apart.experts(layer) == together.experts(layer)
        for expert in apart.experts(layer):
            one, other = (m.feed_forward(layer, expert) for m in (apart, together))
            assert (one.values == other.values).all()
            assert all((one.keys[k] == other.keys[k]).all() for k in one.keys)


def test_a_checkpoint_without_a_head_says_that_its_logits_were_not_compared(tmp_path: Path, zoo):
    zoo("bert").bert.save_pretrained(tmp_path)
    certificate = certify(load(tmp_path))
    assert certificate.passed
    logits = next(c for c in certificate.claims if c.what == findings.LOGITS)
    assert logits.error is None and "no prediction head" in logits.note
