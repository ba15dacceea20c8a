"""How much faster the exact pair search is than blocked brute force, on a real model's heads.

    python tests/bench/pairs.py                 40 circuits drawn by seed, ratios side by side
    python tests/bench/pairs.py --all           all circuits, search only: the whole model's time
    python tests/bench/pairs.py --dense         also the dense V × V way (needs ~2 × 4 V² bytes)
    python tests/bench/pairs.py --tuned         also a brute force with care, see `tuned`
    python tests/bench/pairs.py --cold          forget what is remembered of the table each time
    python tests/bench/pairs.py --threads 1 --cpu   processor time of one thread: on a busy machine

Both sides of a ratio start from E, A and B and run one after the other in the same process, with
the same number of threads. Brute force multiplies tiles of rows with all columns in float32 and
keeps a running top k.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads hurt on a busy machine

import torch
from safetensors import safe_open
from torch import Tensor

from embspace.projection import factors
from embspace.projection.pairs import Factor, top_pairs

HOME = Path.home() / ".cache" / "embspace-real"


class Weights:
    """Llama- or Gemma-shaped attention weights, read one at a time."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.file = safe_open(str(folder / "model.safetensors"), "pt")
        self.n_heads = self.config["num_attention_heads"]
        self.n_groups = self.config["num_key_value_heads"]
        default = self.config["hidden_size"] // self.n_heads
        self.d_h = self.config.get("head_dim", default)
        self.table = self.file.get_tensor("model.embed_tokens.weight").float()

    def all(self) -> list[tuple[int, int, str]]:
        """(layer, head, circuit) of every circuit."""
        layers, heads = range(self.config["num_hidden_layers"]), range(self.n_heads)
        return [(n, h, c) for n in layers for h in heads for c in ("qk", "vo")]

    def circuit(self, layer: int, head: int, circuit: str) -> tuple[Tensor, Tensor]:
        """A and B (d × d_h) of one circuit."""
        group = head // (self.n_heads // self.n_groups)
        names = ("q_proj", "k_proj") if circuit == "qk" else ("v_proj", "o_proj")
        one, other = (
            self.file.get_tensor(f"model.layers.{layer}.self_attn.{n}.weight").float()
            for n in names
        )
        mine = slice(head * self.d_h, (head + 1) * self.d_h)
        shared = slice(group * self.d_h, (group + 1) * self.d_h)
        if circuit == "qk":
            return one[mine].T.contiguous(), other[shared].T.contiguous()
        return one[shared].T.contiguous(), other[:, mine].contiguous()


def brute(table: Tensor, a: Tensor, b: Tensor, k: int, rows: int = 512) -> Tensor:
    """Blocked float32 brute force with a running top k."""
    p, q = table @ a, table @ b
    best = torch.empty(0)
    for start in range(0, len(p), rows):
        scores = (p[start : start + rows] @ q.T).flatten()
        best = torch.cat([best, scores.topk(k).values]).topk(k).values
    return best


def tuned(table: Tensor, a: Tensor, b: Tensor, k: int, rows: int = 128) -> Tensor:
    """Brute force that reuses its buffer and sorts only the rows above the running threshold."""
    p, q = table @ a, table @ b
    best, buffer = torch.empty(0), torch.empty(rows, len(q))
    for start in range(0, len(p), rows):
        tile = p[start : start + rows]
        scores = torch.mm(tile, q.T, out=buffer[: len(tile)])
        if len(best) == k:
            scores = scores[scores.amax(dim=1) > best[-1]]
        if scores.numel():
            best = torch.cat([best, scores.flatten().topk(k).values]).topk(k).values
    return best


def dense(table: Tensor, a: Tensor, b: Tensor, k: int) -> Tensor:
    """The notebook way: the whole V × V matrix, a threshold from a quantile, then a sort."""
    scores = (table @ a @ b.T) @ table.T
    threshold = scores[:: max(1, len(scores) // 64)].flatten().topk(k).values[-1]
    at = (scores >= threshold).nonzero()
    return scores[at[:, 0], at[:, 1]].topk(k).values


clock = time.perf_counter


def timed(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Seconds and result."""
    start = clock()
    result = work()
    return clock() - start, result


def peak_rss() -> float:
    """Peak resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def drawn(weights: Weights, count: int, seed: int) -> list[tuple[int, int, str]]:
    """Circuits drawn without replacement."""
    every = weights.all()
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return [every[int(n)] for n in order[:count]]


def side_by_side(weights: Weights, options: argparse.Namespace) -> Iterator[dict[str, float]]:
    """One dict of seconds a drawn circuit."""
    table, k = weights.table, options.k
    ways = {"brute": brute}
    ways |= {way.__name__: way for way in (tuned, dense) if getattr(options, way.__name__)}
    for name in drawn(weights, options.count, options.seed):
        a, b = weights.circuit(*name)
        if options.cold:
            factors._sizes.clear()
        ours, found = timed(lambda a=a, b=b: top_pairs(Factor(table, a), Factor(table, b), k).score)
        seconds = {"ours": ours}
        for way, work in ways.items():
            seconds[way], other = timed(lambda a=a, b=b, work=work: work(table, a, b, k))
            torch.testing.assert_close(other.double(), found, rtol=1e-4, atol=1e-4)
        print(*name, *(f"{way} {spent:.3f} s" for way, spent in seconds.items()), flush=True)
        yield seconds


def compare(weights: Weights, options: argparse.Namespace) -> None:
    """Print ratios against every other way."""
    every = list(side_by_side(weights, options))
    for way in every[0]:
        spent = sorted(seconds[way] for seconds in every)
        ratios = sorted(seconds[way] / seconds["ours"] for seconds in every)
        print(
            f"{way}: median {statistics.median(spent):.3f} s, worst {spent[-1]:.3f} s; times ours: "
            f"median {statistics.median(ratios):.1f}, p10 {ratios[len(ratios) // 10]:.1f}, "
            f"worst {ratios[0]:.1f}"
        )


def whole(weights: Weights, options: argparse.Namespace) -> None:
    """Print the time of every circuit of the model, and of ten by brute force."""
    spent = []
    for name in weights.all():
        a, b = weights.circuit(*name)
        left, right = Factor(weights.table, a), Factor(weights.table, b)
        spent.append((timed(lambda x=left, y=right: top_pairs(x, y, options.k).score)[0], name))
    print(f"{len(spent)} circuits: {sum(s for s, _ in spent):.1f} s; slowest first:")
    print(*(f"{seconds:.3f} {name}" for seconds, name in sorted(spent, reverse=True)[:8]), sep="\n")
    print(f"peak RSS {peak_rss():.2f} GB")
    ten = 0.0
    for name in drawn(weights, 10, options.seed):
        a, b = weights.circuit(*name)
        ten += timed(lambda a=a, b=b: brute(weights.table, a, b, options.k))[0]
    print(f"brute force, ten circuits: {ten:.1f} s")


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=HOME / "smollm2")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    for flag in ("--all", "--dense", "--tuned", "--cold", "--cpu"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    global clock
    clock = time.process_time if options.cpu else time.perf_counter
    torch.set_num_threads(options.threads)
    weights = Weights(options.model)
    (whole if options.all else compare)(weights, options)
    print(f"peak RSS {peak_rss():.2f} GB")


if __name__ == "__main__":
    main()
