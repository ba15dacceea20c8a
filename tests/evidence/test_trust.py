"""Agreement of readings and doings against transformers and scipy; a model that is as it reads."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr

import embspace
from embspace.errors import CertificateError, EmbspaceError
from embspace.estimate import Estimate
from embspace.evidence.agreement import ranks
from embspace.evidence.grades import recall, remember
from embspace.evidence.head_trust import SOME, STRONG, grade_of, trust
from embspace.evidence.state_overlap import state_overlap
from embspace.live.capture import StateError
from embspace.text.text import Text

TEXTS = ("The cats and the dogs saw Paris.", "Her brother sings in Rome.", "Doctors heal, teachers")


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def doings(folder, ids):
    """Attention weights (H, T, T) and inputs of the output matrix (T, H · d_h) of each block."""
    live = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64
    ).eval()
    mixed = []
    for name, module in live.named_modules():
        if name.endswith(("attn.c_proj", "self_attn.o_proj")):
            module.register_forward_hook(lambda m, args, out: mixed.append(args[0][0].double()))
    with torch.no_grad():
        found = live(torch.tensor([ids]), output_attentions=True).attentions
    weights = {name: w.double().numpy() for name, w in live.state_dict().items()}
    return weights, [w[0].double().numpy() for w in found], [x.numpy() for x in mixed]


def softened(folder, into):
    """The same model with small queries, so that no attention weight is too small for a float."""
    shutil.copytree(folder, into)
    weights = load_file(into / "model.safetensors")
    for name, w in weights.items():
        if name.endswith("c_attn.weight"):
            w[:, :32] *= 0.02
        if name.endswith("c_attn.bias"):
            w[:32] *= 0.02
        if name.endswith("q_proj.weight"):
            w *= 0.02
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})
    return into


def factors(weights, kind: str, layer: int):
    """W_Q, W_K, W_V (d × d_h) and W_O (d_h × d) of every query head, from the state dict."""
    if kind == "gpt2":
        block = f"transformer.h.{layer}.attn."
        q, k, v = np.split(weights[block + "c_attn.weight"], 3, axis=1)
        cut = [x.reshape(32, 4, 8).transpose(1, 0, 2) for x in (q, k, v)]
        return *cut, weights[block + "c_proj.weight"].reshape(4, 8, 32)
    block = f"model.layers.{layer}.self_attn."
    q, k, v = (
        weights[f"{block}{n}_proj.weight"].reshape(-1, 8, 36).transpose(0, 2, 1) for n in "qkv"
    )
    o = weights[f"{block}o_proj.weight"].T.reshape(6, 8, 36)
    return q, np.repeat(k, 3, axis=0), np.repeat(v, 3, axis=0), o


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_agreement_is_that_of_dense_readings_and_a_live_model(
    kind, tiny_gpt2, tiny_llama, tmp_path
):
    folder = softened({"gpt2": tiny_gpt2, "llama": tiny_llama}[kind], tmp_path / kind)
    model = embspace.load(folder, dtype="float64")
    found = {(h.layer, h.head, h.circuit): h for h in trust(model, Text.read(TEXTS)).heads}
    H, d_h = model.n_heads, 8
    own: dict[tuple[int, int, str], list[float]] = {}
    others: dict[tuple[int, int, str], list[float]] = {}
    for text in TEXTS:
        ids = model.vocabulary.tokenizer(text)["input_ids"]
        weights, attention, mixed = doings(folder, ids)
        table = weights["lm_head.weight"][:300]
        e, T = table[ids], len(ids)
        for layer in range(model.n_layers):
            W_Q, W_K, W_V, W_O = factors(weights, kind, layer)
            read = [(table @ W_Q[h]) @ (table @ W_K[h]).T for h in range(H)]
            read = [scores[ids][:, ids] for scores in read]  # equal tokens, equal scores
            promoted = [e @ W_V[h] @ W_O[h] @ table.T for h in range(H)]
            for h in range(H):
                qk = np.array(
                    [
                        [
                            spearmanr(read[r][q, : q + 1], attention[layer][h, q, : q + 1])[0]
                            for q in range(4, T)
                        ]
                        for r in range(H)
                    ]
                ).mean(1)
                wrote = mixed[layer][:, h * d_h : (h + 1) * d_h] @ W_O[h] @ table.T
                most = [1 + attention[layer][h, q, 1 : q + 1].argmax() for q in range(1, T)]
                vo = np.array(
                    [
                        [correlation(promoted[r][at], wrote[q]) for q, at in enumerate(most, 1)]
                        for r in range(H)
                    ]
                ).mean(1)
                for circuit, means in (("qk", qk), ("vo", vo)):
                    own.setdefault((layer, h, circuit), []).append(means[h])
                    rest = (means.sum() - means[h]) / (H - 1)
                    others.setdefault((layer, h, circuit), []).append(rest)
    assert own.keys() == found.keys()
    for key, values in own.items():
        assert found[key].own.mean == pytest.approx(np.mean(values), abs=1e-5), key
        assert found[key].heads == pytest.approx(np.mean(others[key]), abs=1e-5), key


def test_ranks_are_scipys_with_ties():
    from scipy.stats import rankdata

    x = torch.tensor([[3.0, 1, 1, 2, 3], [0, 0, 0, 0, 0]])
    assert np.allclose(ranks(x).numpy() + 3, rankdata(x.numpy(), axis=1))


@pytest.fixture(scope="module")
def as_it_reads(tiny_gpt2, tmp_path_factory):
    """A block that adds nothing to its reading: no positions, no biases, a norm that does nothing,
    and attention so sharp that a head writes what one token promotes."""
    folder = tmp_path_factory.mktemp("reads") / "model"
    shutil.copytree(tiny_gpt2, folder)
    weights = load_file(folder / "model.safetensors")
    wte = weights["transformer.wte.weight"]
    wte = (wte - wte.mean(1, keepdim=True)) / wte.std(1, keepdim=True, correction=0)
    weights["transformer.wte.weight"] = wte
    weights["transformer.wpe.weight"] *= 0
    for layer in range(3):
        block = f"transformer.h.{layer}."
        weights[block + "ln_1.weight"].fill_(1)
        weights[block + "attn.c_attn.weight"][:, :32] *= 30
        for name in ("ln_1.bias", "attn.c_attn.bias", "attn.c_proj.bias"):
            weights[block + name] *= 0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_block_that_is_as_it_reads_is_trusted(as_it_reads):
    found = trust(embspace.load(as_it_reads), Text.read(TEXTS * 3))
    for head in found.heads:
        if head.layer == 0:
            assert head.grade == "strong", head
            assert head.own.mean > (0.9 if head.circuit == "vo" else 0.98)


def test_grades_follow_the_rule():
    sure, unsure = Estimate(0.1, 0.01, 0.2, 9), Estimate(0.1, -0.01, 0.2, 9)
    strong, some, weak = (Estimate(x, None, None, 9) for x in (STRONG, SOME, SOME - 0.01))
    assert grade_of(strong, {"heads": sure}) == "strong"
    assert grade_of(some, {"heads": sure, "tokens": sure}) == "some"
    assert grade_of(weak, {"heads": sure}) == "none"
    assert grade_of(strong, {"heads": sure, "tokens": unsure}) == "none"
    assert grade_of(strong, {"heads": Estimate(0.1, None, None, 1)}) == "none"


def test_grades_are_kept_for_these_weights_and_norms_only(
    tiny_gpt2, as_it_reads, tmp_path, monkeypatch
):
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path))  # that no other test has filled
    model = embspace.load(as_it_reads)
    assert recall(model) is None
    result = trust(model, Text.read(TEXTS))
    assert remember(model, result)
    kept = recall(model)
    assert kept is not None and kept.text_hash == Text.read(TEXTS).digest
    assert all(kept.of(h.layer, h.head, h.circuit) == h.grade for h in result.heads)
    assert kept.of(9, 9, "vo") is None
    assert recall(model, "folded") is None
    assert recall(embspace.load(tiny_gpt2)) is None
    folder = Path(shutil.copytree(as_it_reads, tmp_path / "model"))
    assert recall(embspace.load(folder)) == kept
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_epsilon": 0.1}))
    assert recall(embspace.load(folder)) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 1}', '{"version": 99}'])
def test_damaged_grades_are_none(as_it_reads, damage):
    from embspace.cache import cache_folder

    model = embspace.load(as_it_reads)
    remember(model, trust(model, Text.read(TEXTS)))
    (file,) = cache_folder("trust").glob(f"{model.checkpoint.fingerprint}-*-raw.json")
    file.write_text(damage)
    assert recall(model) is None
    file.unlink()


def test_masked_models_are_graded_and_their_norms_never_folded():
    model = embspace.load("sample-bert-a")
    corpus = Text.read("sample:reference", limit=6)
    found = trust(model, corpus)
    assert len(found.heads) == 2 * model.n_layers * model.n_heads
    assert all(-1 <= head.own.mean <= 1 for head in found.heads)
    with pytest.raises(EmbspaceError, match="post-norm"):
        trust(model, corpus, norm="folded")


def test_nothing_is_graded_by_states_that_are_not_finite(tiny_llama, tmp_path):
    """The second block's queries would be NaN, and their order an accident."""
    folder = shutil.copytree(tiny_llama, tmp_path / "huge")
    stored = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight"
    stored[name] *= 3e38 / stored[name].abs().max()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CertificateError, match="block 0 hands on NaN or infinity"):
        embspace.load(folder).require_proof()
    model = embspace.load(folder, check=False)
    with pytest.raises(StateError, match=r"state 1 of text \d+ holds NaN or infinity"):
        trust(model, list(TEXTS))
    with pytest.raises(StateError, match=r"state 1 of text \d+ holds NaN or infinity"):
        state_overlap(model, list(TEXTS))


def test_too_little_text_is_refused(tiny_gpt2):
    with pytest.raises(EmbspaceError, match="two texts"):
        trust(embspace.load(tiny_gpt2), Text.read(TEXTS[:1]))
