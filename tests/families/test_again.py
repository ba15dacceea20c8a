"""Blocks run again after a pass: they make of every state what the model made of it."""

import pytest
import torch

from embspace.live.capture import capture_all
from embspace.live.rerun import again
from embspace.live.running import run
from embspace.read.reader import load
from embspace.text.passages import Passage

from .zoo import ZOO

LENGTHS = (3, 14, 9, 14)
PASSES = [
    Passage(tuple((7 * n + 31 * t) % 290 + 5 for t in range(n)), (1, n - 1), line)
    for line, n in enumerate(LENGTHS)
]


@pytest.mark.parametrize("name", ZOO)
def test_blocks_run_again_give_the_states_of_the_pass(saved, name: str):
    model = load(saved(name))
    running = run(model, attention="fast")
    L = model.n_layers
    plain = {
        (line, at): n for n, (line, at) in enumerate((p.line, at) for p in PASSES for at in p.keep)
    }
    expected = capture_all(running, PASSES)
    seen = 0
    for batch in again(running, PASSES, layers=range(L + 1), batch_tokens=30):
        where = zip(batch.states.lines.tolist(), batch.states.positions.tolist(), strict=True)
        rows = [plain[key] for key in where]
        seen += len(rows)
        for start in range(L):  # from each state: nothing is left behind by the run before
            x = batch.streams[start]
            before = x.clone()
            for l in range(start, L):
                x = batch.block(l, x)
                mine, own = batch.taken(x), batch.states.layers[l + 1]
                assert torch.equal(mine, own), (start, l)
                true = expected.layers[l + 1][rows]
                assert (mine - true).abs().max() <= 1e-4 * true.abs().max()
            assert torch.equal(batch.streams[start], before)
    assert seen == len(plain)


def test_the_model_runs_plainly_afterwards(saved):
    running = run(load(saved("llama")), attention="fast")
    before = capture_all(running, PASSES)
    batches = again(running, PASSES, batch_tokens=30)
    next(batches)
    batches.close()
    after = capture_all(running, PASSES)
    assert all(torch.equal(x, after.layers[l]) for l, x in before.layers.items())
    assert torch.is_grad_enabled()
