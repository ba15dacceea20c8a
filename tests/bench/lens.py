"""Time of a lens beside one forward pass plus the head products alone, in one process.

    python tests/bench/lens.py [MODEL] [PROMPT]

Target: at most 1.3 times. Both sides are measured in turn, and the smaller of several times taken.
"""

import sys
import time
from collections.abc import Callable

import torch

import embspace
from embspace.live import rebuilt as replay
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.lens import default_prompt
from embspace.text.passages import Encoder, Passage

REPEATS, SHARE = 7, 1 << 23


def fastest(work: Callable[[], object]) -> tuple[float, float]:
    """Smallest (wall, processor) seconds of several runs."""
    found = []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(w for w, _ in found), min(c for _, c in found)


def main(name: str, prompt: str | None) -> None:
    """Print both times and their ratio."""
    model = embspace.load(name)
    prompt = prompt or default_prompt(model)
    encoder = Encoder(model)
    ids = encoder.framed(encoder.encode([prompt])[0]).ids
    running = run(model, dtype=model.dtype, attention="fast")
    batch = torch.tensor([ids])
    passage = Passage(ids, tuple(range(len(ids))), 0)
    states = capture_all(running, [passage])
    x = torch.cat([states.layers[l] for l in range(model.n_layers + 1)])
    step = max(1, SHARE // len(model.vocabulary))

    def least() -> None:
        with torch.no_grad():
            running.base(input_ids=batch)
            for start in range(0, len(x), step):
                replay.logits(model, x[start : start + step])

    def ours() -> None:
        embspace.lens(model, prompt, "id", running=running)

    ours()
    (a_wall, a_cpu), (b_wall, b_cpu) = fastest(least), fastest(ours)
    print(f"{name}: {len(ids)} tokens, {model.n_layers + 1} states, {len(model.vocabulary)} tokens")
    print(f"forward pass and head products: {a_wall:.3f} s (processor {a_cpu:.3f} s)")
    print(f"lens: {b_wall:.3f} s (processor {b_cpu:.3f} s)")
    print(f"ratio: {b_wall / a_wall:.2f} (processor {b_cpu / a_cpu:.2f})")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sample-gpt2", *(sys.argv[2:3] or [None]))
