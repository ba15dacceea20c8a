"""A head's strongest pairs by TransformerLens's factored matrices, and by the exact search.

    python tests/bench/dense_heads.py [FOLDER] [--k 50]

Needs transformer_lens beside embspace. Both read the same folder with raw weights; W_E W_OV W_U is
multiplied out (V × V) and its largest entries taken, head by head of layer 0. The scores are
compared. FOLDER: by default a bundled sample, for V = 49,152 the dense matrix takes 10 GB.
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import embspace
from embspace.weights.aliases import bundled


def main() -> None:
    """Print processor seconds of both, their ratio, and how far the factors differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=str(bundled("sample-gpt2-b")))
    parser.add_argument("--k", type=int, default=50)
    options = parser.parse_args()
    from transformer_lens.model_bridge import TransformerBridge

    theirs = TransformerBridge.boot_transformers(options.folder)
    ours = embspace.load(options.folder)
    n_heads = range(ours.n_heads)
    circuits = [ours.heads[0, h].vo for h in n_heads]
    circuits[0].top_pairs(options.k)  # what is measured once a table
    with torch.no_grad():
        start = time.process_time()
        dense = [
            (theirs.W_E @ theirs.OV[0, h] @ theirs.W_U).AB.flatten().topk(options.k).values
            for h in n_heads
        ]
        took = time.process_time() - start
    start = time.process_time()
    found = [circuit.top_pairs(options.k) for circuit in circuits]
    mine = time.process_time() - start
    for scores, pairs in zip(dense, found, strict=True):
        exact = torch.tensor([pair.score for pair in pairs.pairs])
        torch.testing.assert_close(scores, exact, rtol=1e-4, atol=1e-5)
    print(f"{len(circuits)} heads, V = {len(ours.vocabulary)}, the same {options.k} scores")
    print(f"dense: {took:.2f} s, exact search: {mine:.3f} s, {took / mine:.0f} times")


if __name__ == "__main__":
    main()
