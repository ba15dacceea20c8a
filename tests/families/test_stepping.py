"""Token by token with cached keys and values: the states of one pass over the whole text."""

import pytest
import torch

from embspace.errors import ModelError
from embspace.live import rebuilt as replay
from embspace.live.capture import capture_all
from embspace.live.greedy import steps
from embspace.live.running import run
from embspace.read.reader import load
from embspace.shorten.generation import require_prompts
from embspace.text.passages import Passage

WINDOWED = ("gpt-neo", "mistral", "gemma2", "gemma3", "olmo3", "cohere2", "gpt-oss")
TURNED_ANEW = ("llama dynamic", "phi3 longrope", "gemma3 dynamic")  # past 8 or 9 tokens
OTHER = ("gpt2", "opt 350m", "bloom", "falcon alibi", "mpt", "gpt-j", "smollm3")
START = [5, 17, 44, 3, 120]


@pytest.mark.parametrize("name", (*OTHER, *WINDOWED, *TURNED_ANEW))
def test_states_of_new_tokens_are_those_of_one_pass(saved, name: str):
    model = load(saved(name))
    running = run(model, attention="fast")
    ids, found = list(START), []
    for _ in range(2):  # what the model keeps of a longer text is gone the next time
        ids, found = list(START), []
        for states, token in steps(
            running, START, 8, lambda x: int(replay.logits(model, x)[0, :300].argmax())
        ):
            found.append(states)
            ids.append(token)
    whole = run(model)
    for n, states in enumerate(found, len(START)):
        one = capture_all(whole, [Passage(tuple(ids[:n]), (n - 1,), 0)])
        for l, x in states.items():
            true = one.layers[l]
            assert (x - true).abs().max() <= 1e-4 * true.abs().max(), (n, l)


@pytest.mark.parametrize("name", TURNED_ANEW)
def test_early_exit_refuses_lengths_at_which_cached_keys_no_longer_fit(saved, monkeypatch, name):
    model = load(saved(name))
    monkeypatch.setattr("embspace.shorten.generation._encoded", lambda *a: [tuple(START)])
    assert require_prompts(model, ["a"], 3) == [tuple(START)]
    with pytest.raises(ModelError, match=r"turns its keys anew in texts of more than [89] tokens"):
        require_prompts(model, ["a"], 8)


def test_other_rotations_have_no_such_length(saved, monkeypatch):
    monkeypatch.setattr("embspace.shorten.generation._encoded", lambda *a: [tuple(START)])
    for name in ("llama", "llama yarn", "llama linear", "gemma3", "gpt2"):
        assert torch.tensor(require_prompts(load(saved(name)), ["a"], 10_000)).shape == (1, 5)
