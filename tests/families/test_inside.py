"""Inside a block of every kind: the stream there, with what the feed-forward really adds."""

import pytest
import torch

from embspace.errors import ModelError
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.inside_block import added, inside, parts_inside
from embspace.read.reader import load
from embspace.text.passages import Passage

IDS = tuple((11 * n + 7) % 290 + 5 for n in range(9))
PASS = [Passage(IDS, tuple(range(len(IDS))), 0)]
SERIAL = ("gpt2", "llama", "gemma2", "olmo2", "bloom", "opt", "opt 350m", "bert", "roberta")
SERIAL += ("granite", "glm4", "albert", "modernbert", "mixtral", "falcon sequential")
SERIAL += ("olmo", "opt without gains")  # norms without a gain to store
PARALLEL = ("gpt-j", "phi", "cohere", "gpt-neox", "falcon multi-query", "stablelm parallel")


def states_of(folder):
    model = load(folder)
    return model, capture_all(run(model), PASS, parts=("ff_norm", "ff"))


@pytest.mark.parametrize("name", SERIAL)
def test_the_stream_inside_and_the_feed_forwards_output_make_the_next_state(saved, name):
    model, states = states_of(saved(name))
    assert parts_inside(model)
    for l in range(3):
        stream, out = inside(model, states, l), states.parts[l, "ff"][1]
        assert not torch.allclose(stream, states.layers[l])
        after, true = added(model, stream, l, out), states.layers[l + 1]
        assert (after - true).abs().max() <= 1e-4 * true.abs().max()


@pytest.mark.parametrize("name", PARALLEL)
def test_blocks_that_compute_both_at_once_are_refused(saved, name):
    model, states = states_of(saved(name))
    with pytest.raises(ModelError, match="side by side"):
        inside(model, states, 1)
