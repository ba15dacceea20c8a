"""Generating with early exit: against transformers' own text and passes without any cache."""

import json
import math
import shutil
from typing import Any

import pytest
import torch
import transformers as hf

import embspace
from embspace.errors import EmbspaceError, MapsError, ModelError
from embspace.live.running import run
from embspace.maps.fit import fit
from embspace.shorten.generated import GeneratedText, Generation, Measures
from embspace.shorten.generation import generate
from embspace.text.text import Text

TEN: Any = {"mean_length": 9.0, "max_new_tokens": 10, "repeats": 1}
PROMPTS = ["cats", "her brother sings in Rome", "dogs teach"]
TINY = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 44,
    "initializer_range": 0.5,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
}
CONFIGS = {
    "neox": lambda: hf.GPTNeoXConfig(**TINY, max_position_embeddings=64),
    "gemma2": lambda: hf.Gemma2Config(
        **TINY, num_key_value_heads=2, head_dim=8, sliding_window=4, final_logit_softcapping=3.0
    ),
    "qwen3": lambda: hf.Qwen3Config(**TINY, num_key_value_heads=2, head_dim=16),
    "opt": lambda: hf.OPTConfig(
        **{k: v for k, v in TINY.items() if k != "intermediate_size"} | {"pad_token_id": 1},
        ffn_dim=44,
        word_embed_proj_dim=16,
        max_position_embeddings=64,
    ),
    "gptj": lambda: hf.GPTJConfig(
        vocab_size=300, n_embd=32, n_layer=3, n_head=4, rotary_dim=4, initializer_range=0.5,
        bos_token_id=0, eos_token_id=0,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def loaded(tiny_gpt2, tiny_llama, save_model):
    """A small model by name, loaded once."""
    folders = {"gpt2": tiny_gpt2, "llama": tiny_llama}
    found = {}

    def get(name):
        if name not in found:
            folder = folders[name] if name in folders else save_model(CONFIGS[name]())
            found[name] = embspace.load(folder)
        return found[name]

    return get


@pytest.fixture(scope="module")
def llama(loaded):
    return loaded("llama")


@pytest.fixture(scope="module")
def gpt2(loaded):
    return loaded("gpt2")


@pytest.fixture(scope="module")
def gpt2_maps(gpt2, corpus):
    return fit(gpt2, Text.read(corpus, positions="all"), pairs="all")


def own_text(model, prompt, n):
    """What transformers generates greedily; padded rows of the head are no tokens."""
    module = run(model, attention="eager").module
    ids = torch.tensor([model.vocabulary.tokenizer(prompt)["input_ids"]])
    rows = module.get_output_embeddings().weight.shape[0]
    never = list(range(len(model.vocabulary), rows))
    out = module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=n,
        suppress_tokens=never or None,
        pad_token_id=0,
        eos_token_id=0,
    )
    return out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("name", ["gpt2", "llama", *CONFIGS])
@pytest.mark.parametrize("exit", ["none", "last", "never sure"])
def test_without_early_exits_the_text_is_transformers_own(loaded, name, exit):
    model = loaded(name)
    given = {"none": {}, "last": {"exit_layer": model.n_layers}}
    how = given.get(exit, {"exit_threshold": 2.0})
    found = generate(model, None, PROMPTS, **how, max_new_tokens=9, repeats=1)
    for text, prompt in zip(found.texts, PROMPTS, strict=True):
        assert list(text.ids) == own_text(model, prompt, 9) == list(text.full_ids)
    assert found.blocks == model.n_layers and found.agreement == 1
    assert "nothing was saved" in found.verdict


def naive(model, prompt, n, decide, stand_in=None):
    """(tokens, blocks): every token by a whole pass without cache.

    Where `stand_in` is given, a position that left after l blocks enters each later block j as
    stand_in(its state, l, j), put there by a hook on the block.
    """
    running = run(model, attention="eager")
    blocks = [running.block(l) for l in range(model.n_layers)]
    ids = [*model.vocabulary.tokenizer(prompt)["input_ids"]]
    start, left, tokens, ran = len(ids), {}, [], []
    for _ in range(n):
        states = {}

        def before(module, args, kwargs, states=states):
            j = blocks.index(module)
            x = (args[0] if args else kwargs["hidden_states"]).clone()
            states[j] = x[0, -1]
            for at, (l, state) in left.items():
                if l <= j and stand_in:
                    x[0, at] = stand_in(state, l, j)
            return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})

        def after(module, args, output, states=states):
            last = output[0] if isinstance(output, tuple) else output
            states[len(blocks)] = last[0, -1]

        hooks = [b.register_forward_pre_hook(before, with_kwargs=True) for b in blocks]
        hooks.append(blocks[-1].register_forward_hook(after))
        with torch.no_grad():
            running.base(input_ids=torch.tensor([ids]), use_cache=False)
        for hook in hooks:
            hook.remove()
        at = len(ids) - 1
        first = len(ids) == start  # the prompt is read by all blocks
        l, token = decide(states, at, only_last=first)
        if l < len(blocks):
            left[at] = (l, states[l])
        ids.append(token)
        tokens.append(token)
        ran.append(l)
        if token == 0:
            break
    return tokens, ran


def confidence(model, lens, lam, mean_length):
    """The rule row by row: softmax, two largest, threshold."""
    from embspace.live import rebuilt as replay

    def decide(states, at, only_last):
        for l in [] if only_last else range(1, model.n_layers):
            z = replay.logits(model, lens(states[l], l))[: len(model.vocabulary)]
            p = sorted(z.softmax(-1).tolist())
            if p[-1] - p[-2] > 0.9 * lam + 0.1 * math.exp(-4 * at / mean_length):
                return l, int(z.argmax())
        z = replay.logits(model, states[model.n_layers])[: len(model.vocabulary)]
        return model.n_layers, int(z.argmax())

    return decide


@pytest.mark.parametrize("fill", ["maps", "copy", "recompute"])
@pytest.mark.parametrize("lam", [0.05, 0.3])
def test_each_fill_gives_what_its_stand_ins_give_without_a_cache(gpt2, gpt2_maps, fill, lam):
    found = generate(gpt2, gpt2_maps, PROMPTS, exit_threshold=lam, fill=fill, **TEN)
    stand_in = {
        "maps": lambda x, l, j: x if l == j else x @ gpt2_maps[l, j],
        "copy": lambda x, l, j: x,
        "recompute": None,
    }[fill]
    decide = confidence(gpt2, lambda x, l: x @ gpt2_maps[l, 3], lam, 9.0)
    for text, prompt in zip(found.texts, PROMPTS, strict=True):
        tokens, blocks = naive(gpt2, prompt, 10, decide, stand_in)
        assert list(text.ids) == tokens and list(text.blocks) == blocks
    assert found.blocks < gpt2.n_layers


@pytest.mark.parametrize("fill", ["copy", "recompute"])
def test_grouped_heads_and_rotation_are_stored_as_without_a_cache(llama, fill):
    lam = 0.02
    found = generate(llama, None, PROMPTS, exit_threshold=lam, fill=fill, **TEN)
    decide = confidence(llama, lambda x, l: x, lam, 9.0)
    stand_in = (lambda x, l, j: x) if fill == "copy" else None
    for text, prompt in zip(found.texts, PROMPTS, strict=True):
        tokens, blocks = naive(llama, prompt, 10, decide, stand_in)
        assert list(text.ids) == tokens and list(text.blocks) == blocks
    assert found.blocks < llama.n_layers


def test_a_batch_is_what_its_prompts_are_alone(gpt2, gpt2_maps):
    how: Any = {"exit_threshold": 0.2, "mean_length": 8.0, "max_new_tokens": 12, "repeats": 1}
    together = generate(gpt2, gpt2_maps, PROMPTS, **how)
    for text, prompt in zip(together.texts, PROMPTS, strict=True):
        alone = generate(gpt2, gpt2_maps, prompt, **how).texts[0]
        assert (alone.ids, alone.blocks, alone.text) == (text.ids, text.blocks, text.text)


def test_blocks_after_the_exit_do_not_run(gpt2, gpt2_maps, monkeypatch):
    from embspace.shorten import generation as generating

    running = run(gpt2)
    calls = [0] * 3
    for l in range(3):
        running.block(l).mlp.register_forward_hook(
            lambda *_, l=l: calls.__setitem__(l, calls[l] + 1)
        )
    monkeypatch.setattr(generating, "start_model", lambda *a, **k: running)
    generate(gpt2, gpt2_maps, "cats", exit_layer=1, max_new_tokens=6, repeats=1)
    assert calls[1] == calls[2] < calls[0]  # blocks 1 and 2: prompts and the full model only


def test_a_text_ends_at_every_end_token_that_the_generation_config_names(gpt2, tmp_path):
    whole = generate(gpt2, None, "cats", max_new_tokens=4, repeats=1).texts[0].full_ids
    folder = shutil.copytree(gpt2.folder, tmp_path / "model")
    named = {"eos_token_id": [whole[1], gpt2.config.eos_token_id]}
    (folder / "generation_config.json").write_text(json.dumps(named))
    found = generate(embspace.load(folder), None, "cats", max_new_tokens=4, repeats=1).texts[0]
    assert found.full_ids == whole[: whole.index(whole[1]) + 1]


def test_a_fixed_exit_answers_from_its_state_through_the_map(gpt2, gpt2_maps):
    found = generate(gpt2, gpt2_maps, PROMPTS[1], exit_layer=1, max_new_tokens=8, repeats=1)
    assert found.texts[0].blocks == (3, *[1] * (len(found.texts[0].blocks) - 1))
    assert found.histogram == (0, len(found.texts[0].ids) - 1, 0, 1)


def test_the_model_is_left_as_it_was(gpt2):
    running = run(gpt2)
    from embspace.shorten.generation import _Generating
    from embspace.shorten.stepwise import Leaving

    work = _Generating(running, None, [(3, 4, 5)])
    work._generate(Leaving(3, after=1), "copy", 3)
    for l in range(3):
        assert "forward" not in vars(running.block(l))
        assert not running.block(l)._forward_hooks and not running.block(l)._forward_pre_hooks


def test_what_cannot_generate_is_refused_in_a_sentence(gpt2, gpt2_maps, llama, corpus, save_model):
    bert = embspace.load("sample-bert-a")
    with pytest.raises(ModelError, match="masked model"):
        generate(bert, None, "a")
    config = hf.BloomConfig(vocab_size=300, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(ModelError, match="alibi positions"):
        generate(embspace.load(save_model(config)), None, "a")
    with pytest.raises(MapsError, match="fitted on"):
        generate(llama, gpt2_maps, "a")
    final = fit(gpt2, corpus, pairs="final")
    with pytest.raises(MapsError, match="all pairs"):
        generate(gpt2, final, "a", exit_threshold=0.5, fill="maps")
    found = generate(gpt2, final, "a", exit_layer=1, max_new_tokens=2, repeats=1)
    assert found.settings["fill"] == "copy"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"exit_layer": 4}, "no exit after 4 blocks"),
        ({"exit_layer": -1}, "no exit after -1"),
        ({"exit_layer": True}, "whole number"),
        ({"exit_threshold": math.nan}, "must be a number"),
        ({"exit_layer": "0.5"}, "whole number"),
        ({"exit_threshold": 0.5, "layers": [9]}, "layer 9"),
        ({"fill": "zeros"}, "unknown fill"),
        ({"mean_length": 0.0}, "mean_length"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 64}, "takes"),
        ({"repeats": 0}, "repeats"),
    ],
)
def test_wrong_arguments_are_refused(gpt2, given, words):
    with pytest.raises(EmbspaceError, match=words):
        generate(gpt2, None, "cats", **given)


@pytest.mark.parametrize("prompts", [[], [3], "", [""]])
def test_prompts_without_a_token_are_refused(gpt2, prompts):
    with pytest.raises(EmbspaceError, match=r"prompt|token"):
        generate(gpt2, None, prompts)


def test_a_gain_that_some_run_does_not_show_is_none():
    text = GeneratedText("a", "b", "b", (1, 2), (1, 2), (3, 1))

    def verdict(mine, full):
        return Generation((text,), Measures(mine, full, {"copy": 1.0}), 3).verdict

    assert verdict((1.0, 1.1), (2.0, 2.2)).startswith("2.00 times as fast")
    assert "noise" in verdict((1.0, 2.5), (2.0, 2.2))
    assert verdict((2.0,), (1.0,)).startswith("No gain in time:")


def test_a_block_and_a_lambda_have_names_of_their_own(gpt2, gpt2_maps):
    """exit=1 was a block and exit=1.0 a λ: the same number as either is said by name."""
    how: Any = {"max_new_tokens": 3, "repeats": 1}
    blocks = generate(gpt2, gpt2_maps, "cats", exit_layer=1, **how).settings
    sure = generate(gpt2, gpt2_maps, "cats", exit_threshold=1, **how).settings
    assert (blocks["rule"], blocks["at"]) == ("fixed", 1)
    assert (sure["rule"], sure["at"]) == ("confidence", 1.0)
    for number in (1, 1.0, 0.3):
        with pytest.raises(EmbspaceError, match="say exit_layer for blocks, exit_threshold"):
            generate(gpt2, gpt2_maps, "cats", exit=number)  # type: ignore[arg-type]
    with pytest.raises(EmbspaceError, match="one of exit, exit_layer and exit_threshold"):
        generate(gpt2, gpt2_maps, "cats", exit_layer=1, exit_threshold=0.5)
    with pytest.raises(EmbspaceError, match="whole number"):
        generate(gpt2, gpt2_maps, "cats", exit_layer=1.0)  # type: ignore[arg-type]
    with pytest.raises(EmbspaceError, match="λ must be a number"):
        generate(gpt2, gpt2_maps, "cats", exit_threshold=float("nan"))
