"""Aligning a parameter group of two models: against the bare product, and the paper's dense way.

    python tests/bench/align.py                      K of two BERT-base shapes (12 x 3,072 x 768)
    python tests/bench/align.py --layers 2 --dense   also the dense way, at a size it can do
    python tests/bench/align.py --threads 1 --cpu    processor time of one thread: on a busy machine

Weights are random, and so is E (30,522 rows). The bare product multiplies the same tables of
vectors, tile by tile, and does nothing with the tiles: no way that looks at all pairs is faster.
The dense way projects all vectors to the vocabulary and takes numpy.corrcoef of them, two layers
at a time, as the paper's code does. All run one after the other in this process.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads hurt on a busy machine

import numpy as np
import torch
from torch import Tensor

from embspace.between.correlations import VocabularyCorrelation
from embspace.between.layer_scores import TILE, Scores
from embspace.between.layer_vectors import Piece
from embspace.between.matching import match_layers
from embspace.between.shared_tokens import SharedTokens

clock = time.perf_counter


class RandomModel:
    """E and the keys of every layer, some of each shared with the model of another seed."""

    def __init__(self, options: argparse.Namespace, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        shape = options.layers, options.neurons, options.width
        self.table = torch.randn(options.vocabulary, options.width, generator=draw) + 0.3
        self.keys = torch.randn(shape, generator=draw)

    def pieces(self) -> list[Piece]:
        """One piece a layer."""
        return [Piece(n, lambda rows=rows: rows) for n, rows in enumerate(self.keys)]


def ours(a: RandomModel, b: RandomModel) -> Tensor:
    """Scores and match, kernels included."""
    ids = torch.arange(len(a.table))
    shared = SharedTokens(ids, ids, (len(ids), len(ids)), True, 0)
    space = VocabularyCorrelation(a.table, b.table, shared)
    scores = Scores.empty(len(a.keys), len(b.keys))
    for _ in scores.add(a.pieces(), b.pieces(), space):
        pass
    match_layers(scores.means)
    return scores.means


def bare(a: RandomModel, b: RandomModel) -> Tensor:
    """All products of all vectors, tile by tile, into one buffer."""
    step = max(1, TILE // a.keys.shape[1])
    buffer = torch.empty(step * b.keys.shape[1])
    for one in a.keys:
        for other in b.keys:
            for rows in one.split(step):
                tile = buffer[: len(rows) * len(other)].view(len(rows), -1)
                torch.mm(rows, other.T, out=tile)
    return buffer[:1]


def dense(a: RandomModel, b: RandomModel) -> Tensor:
    """The paper's way: project to V, corrcoef of both, mean |block|."""
    found = torch.empty(len(a.keys), len(b.keys), dtype=torch.float64)
    for i, one in enumerate(a.keys):
        left = (one @ a.table.T).numpy()
        for j, other in enumerate(b.keys):
            right = (other @ b.table.T).numpy()
            both = np.corrcoef(left, right, dtype=np.float32)
            found[i, j] = np.abs(both[: len(one), len(one) :]).mean(dtype=np.float64)
    return found


def timed(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Seconds and result."""
    start = clock()
    result = work()
    return clock() - start, result


def peak_rss() -> float:
    """Peak resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    """Time what the options ask for and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--neurons", type=int, default=3072)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    for flag in ("--dense", "--cpu"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    global clock
    clock = time.process_time if options.cpu else time.perf_counter
    torch.set_num_threads(options.threads)
    a, b = RandomModel(options, 0), RandomModel(options, 1)
    print(f"models {peak_rss():.2f} GB", flush=True)
    for _ in range(options.repeat):
        seconds, scores = timed(lambda: ours(a, b))
        print(f"ours {seconds:.1f} s, peak RSS {peak_rss():.2f} GB", flush=True)
        plain, _ = timed(lambda: bare(a, b))
        print(f"bare product {plain:.1f} s: ours takes {seconds / plain:.2f} times as long")
        if options.dense:
            spent, expected = timed(lambda: dense(a, b))
            apart = float((scores - expected).abs().max())
            print(f"dense way {spent:.1f} s: {spent / seconds:.1f} times ours; apart {apart:.1e}")
            print(f"peak RSS with it {peak_rss():.2f} GB")


if __name__ == "__main__":
    main()
