"""What taking all states costs beside the plain transformers forward pass over the same batches.

    python tests/bench/states.py                        SmolLM2, 400 Wikipedia sentences
    python tests/bench/states.py --model sample-gpt2    a bundled sample with its own sentences
    python tests/bench/states.py --positions all        a row of every token
    python tests/bench/states.py --threads 1            on a busy machine; read the processor time

Every batch is run both ways, one right after the other, the order changing from batch to batch;
ours includes sorting, padding, hooks, the rows of every layer, the check that they are finite and
their conversion. The plain pass is the model without its head, no hidden states asked for. The
target is a ratio of at most 1.15.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from embspace import load
from embspace.live.capture import batches, capture, pad_id, padded
from embspace.live.running import Running, run
from embspace.text.passages import passages
from embspace.text.text import Text

HOME = Path(os.environ.get("EMBSPACE_REAL", Path.home() / ".cache" / "embspace-real"))
TARGET = 1.15


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of all processors together."""

    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> Spent:
    """Seconds that a piece of work takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def plain(running: Running, batch: list[Any]) -> None:
    """The forward pass that anyone would write."""
    ids, mask = padded(batch, pad_id(running))
    cache = {"use_cache": False} if running.model.family.causal else {}
    with torch.no_grad():
        running.base(input_ids=ids, attention_mask=mask, **cache)


def compared(running: Running, taken: Any, options: argparse.Namespace) -> list[dict[str, Spent]]:
    """Both ways on every batch."""
    ours = capture(running, taken.passages, batch_tokens=options.batch_tokens)
    every = list(batches(taken.passages, options.batch_tokens))
    plain(running, every[0])  # warm
    found = []
    for n, batch in enumerate(every):
        ways = {"ours": lambda: next(ours), "plain": lambda batch=batch: plain(running, batch)}
        order = list(ways) if n % 2 else list(ways)[::-1]
        found.append({way: timed(ways[way]) for way in order})
    return found


def main() -> None:
    """Run what the options ask for and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(HOME / "smollm2"))
    parser.add_argument("--text", default=None, help="default: the Wikipedia sentences, if there")
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--positions", default="random")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, wiki = load(options.model), HOME / "wiki" / "sentences.txt"
    text = options.text or (wiki if wiki.is_file() and Path(options.model).is_dir() else None)
    corpus = Text.of(None, model, options.lines) if text is None else Text.read(text)
    lines = range(min(options.lines, len(corpus)))
    taken = passages(model, Text.read(corpus, positions=options.positions), lines=lines)
    found = compared(run(model, attention="fast"), taken, options)
    print(
        f"{len(found)} batches, {taken.n_tokens} tokens, {taken.n_rows} rows of "
        f"{model.n_layers + 1} states, {options.threads} threads"
    )
    for clock in Spent._fields:
        spent = {way: sum(getattr(one[way], clock) for one in found) for way in ("ours", "plain")}
        each = [getattr(one["ours"], clock) / getattr(one["plain"], clock) for one in found]
        rate = taken.n_tokens / spent["ours"]
        print(
            f"  {clock} time: ours {spent['ours']:.2f} s, plain {spent['plain']:.2f} s, ratio "
            f"{spent['ours'] / spent['plain']:.3f} (median batch {statistics.median(each):.3f}; "
            f"target {TARGET}), {rate:.0f} tokens/s"
        )


if __name__ == "__main__":
    main()
