"""Vectors near a topic against dense cosines; a planted topic; chance for words without one."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import embspace
from embspace.errors import EmbspaceError, VocabularyError
from embspace.evidence.concepts import concept

WORDS = ["#280", "#285", "#290"]


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_cosines_are_those_of_the_stored_vectors(tiny_llama):
    model = embspace.load(tiny_llama)
    weights = {
        n: w.double().numpy() for n, w in load_file(tiny_llama / "model.safetensors").items()
    }
    topic = unit(weights["lm_head.weight"][[280, 285, 290]].mean(0))
    found = concept(model, WORDS, k=4, heads=True, draws=50)
    mlp = {"gate": "gate_proj", "up": "up_proj", "value": "down_proj"}
    for part, name in mlp.items():
        vectors = [weights[f"model.layers.{n}.mlp.{name}.weight"] for n in range(2)]
        vectors = np.concatenate([v.T if part == "value" else v for v in vectors])
        expected = np.sort(unit(vectors) @ topic)[::-1][:4]
        assert [v.cosine for v in found.of_part(part)] == pytest.approx(expected, abs=1e-6)
        assert found.n_vectors[part] == 88
        best = found.of_part(part)[0]
        at = best.layer * 44 + int(best.where.split()[-1])
        assert unit(vectors)[at] @ topic == pytest.approx(best.cosine, abs=1e-6)
    for part, name in (("W_Q", "q"), ("W_K", "k"), ("W_V", "v"), ("W_O", "o")):
        vectors = [weights[f"model.layers.{n}.self_attn.{name}_proj.weight"] for n in range(2)]
        vectors = np.concatenate([v.T if name == "o" else v for v in vectors])
        expected = np.sort(np.abs(unit(vectors) @ topic))[::-1][:4]  # their sign means nothing
        assert [v.cosine for v in found.of_part(part)] == pytest.approx(expected, abs=1e-6)


def test_a_planted_topic_is_found_first_and_beyond_chance(tiny_gpt2, tmp_path):
    folder = tmp_path / "planted"
    shutil.copytree(tiny_gpt2, folder)
    weights = load_file(folder / "model.safetensors")
    topic = weights["transformer.wte.weight"][[280, 285, 290]].mean(0)
    weights["transformer.h.1.mlp.c_proj.weight"][7] = 3 * topic
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    found = concept(embspace.load(folder), WORDS, k=2, draws=200)
    first, second = found.of_part("value")
    assert (first.layer, first.where) == (1, "neuron 7")
    assert first.cosine == pytest.approx(1, abs=1e-5)
    assert first.p == first.p_best == pytest.approx(1 / 201)
    assert second.cosine < 0.9


def test_random_words_are_no_topic():
    model = embspace.load("sample-gpt2")
    pool = [int(i) for i in model.vocabulary.mask("words").nonzero()[:, 0]]
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(8))
    lows = 0
    for n in range(8):
        words = [f"#{pool[i]}" for i in order[n * 4 : n * 4 + 4].tolist()]
        found = concept(model, words, k=1, draws=99, seed=n)
        lows += found.of_part("value")[0].p_best <= 0.05
    assert lows <= 3


def test_both_spellings_count_as_the_one_that_starts_a_word():
    model = embspace.load("sample-gpt2")
    assert concept(model, ["the"], k=1, draws=20).tokens == ("·the",)


def test_one_spelling_given_twice_counts_once(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    once, twice = (concept(model, words, k=1, draws=20) for words in (WORDS, WORDS * 2))
    assert once.to_json() == twice.to_json()


def test_what_is_no_topic_is_refused(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    with pytest.raises(VocabularyError, match="at least one word"):
        concept(model, [])
    with pytest.raises(VocabularyError, match="not one token"):
        concept(model, ["unheardof"])
    for wrong in ({"k": 0}, {"draws": 0}, {"layers": [9]}, {"norm": "none"}):
        with pytest.raises(EmbspaceError):
            concept(model, WORDS, **wrong)


def test_a_centred_topic_is_without_the_mean_of_all_tokens(tiny_llama):
    model = embspace.load(tiny_llama)
    weights = load_file(tiny_llama / "model.safetensors")
    table = weights["lm_head.weight"].double().numpy()
    mean, own = table.mean(0), table[[280, 285, 290]].mean(0)
    values = np.concatenate(
        [weights[f"model.layers.{n}.mlp.down_proj.weight"].double().numpy().T for n in range(2)]
    )
    found = concept(model, WORDS, k=1, draws=20, centred=True)
    assert found.common == pytest.approx(unit(own) @ unit(mean), abs=1e-6)
    expected = (unit(values) @ unit(own - mean)).max()
    assert found.of_part("value")[0].cosine == pytest.approx(expected, abs=1e-6)
