"""How much faster the exact pair search is than blocked brute force, on a real model's heads.

    python tests/bench/pairs.py                 40 circuits drawn by seed, ratios side by side
    python tests/bench/pairs.py --plain 8       the slower baseline on the first eight only
    python tests/bench/pairs.py --minutes 10    stop after ten minutes; the summary says of how many
    python tests/bench/pairs.py --all           all circuits, search only: the whole model's time
    python tests/bench/pairs.py --dense         also the dense V × V way (needs ~2 × 4 V² bytes)
    python tests/bench/pairs.py --cold          forget what is remembered of the table each time
    python tests/bench/pairs.py --threads 1     on a busy machine; read the processor time then

All sides of a ratio start from E, A and B and run one after the other in the same process, with
the same number of threads; both wall time and processor time (of all threads) are taken. Two
brute forces in float32, `brute` and `prefiltered`, are the baselines: either multiplies tiles of
rows with all columns and keeps a running top k, the second only looks into rows of a tile whose
maximum beats the k-th best so far.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads hurt on a busy machine

import torch
from safetensors import safe_open
from torch import Tensor

from embspace.read import factors
from embspace.read.pairs import Factor, top_pairs
from embspace.read.parallel import in_order

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

    def pairs(self, table: Tensor, k: int, *name: Any) -> Tensor:
        """Our scores of one circuit."""
        a, b = self.circuit(*name)
        return top_pairs(Factor(table, a), Factor(table, b), k).score


def brute(table: Tensor, a: Tensor, b: Tensor, k: int, rows: int = 512) -> Tensor:
    """Blocked float32 brute force with a running top k."""
    p, q = table @ a, table @ b
    best = torch.empty(0)
    for start in range(0, len(p), rows):
        scores = (p[start : start + rows] @ q.T).flatten()
        best = torch.cat([best, scores.topk(k).values]).topk(k).values
    return best


def prefiltered(table: Tensor, a: Tensor, b: Tensor, k: int, rows: int = 128) -> Tensor:
    """The same with care: one buffer, and only rows whose maximum beats the k-th best so far."""
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


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of all processors together."""

    wall: float
    cpu: float


def timed(work: Callable[[], Tensor]) -> tuple[Spent, Tensor]:
    """Seconds and result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu), result


def peak_rss() -> float:
    """Peak resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def drawn(weights: Weights, count: int, seed: int) -> list[tuple[int, int, str]]:
    """Circuits drawn without replacement."""
    every = weights.all()
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return [every[int(n)] for n in order[:count]]


def side_by_side(weights: Weights, options: argparse.Namespace) -> Iterator[dict[str, Spent]]:
    """What each way spent on a drawn circuit, circuit by circuit, until the minutes are over."""
    table, k = weights.table, options.k
    ways = {"brute": brute, "prefiltered": prefiltered} | (
        {"dense": dense} if options.dense else {}
    )
    end = time.monotonic() + 60 * options.minutes
    for at, name in enumerate(drawn(weights, options.count, options.seed)):
        a, b = weights.circuit(*name)
        if at == options.plain:
            ways = {way: work for way, work in ways.items() if way == "prefiltered"}
        if options.cold:
            factors._sizes.clear()
        ours, found = timed(lambda a=a, b=b: top_pairs(Factor(table, a), Factor(table, b), k).score)
        spent = {"ours": ours}
        for way, work in ways.items():
            spent[way], other = timed(lambda a=a, b=b, work=work: work(table, a, b, k))
            torch.testing.assert_close(other.double(), found, rtol=1e-4, atol=1e-4)
        print(
            *name, *(f"{way} {s.wall:.2f} ({s.cpu:.2f}) s" for way, s in spent.items()), flush=True
        )
        yield spent
        if time.monotonic() > end:
            print(f"stopped after {options.minutes:g} minutes", flush=True)
            return


def compare(weights: Weights, options: argparse.Namespace) -> None:
    """Print ratios against every other way, also where a budget or Ctrl-C ended the run early."""
    every: list[dict[str, Spent]] = []
    try:
        for spent in side_by_side(weights, options):
            every.append(spent)
    except KeyboardInterrupt:
        print("interrupted")
    print(f"{len(every)} of {options.count} circuits, k {options.k}, {options.threads} threads")
    for clock in Spent._fields if every else ():
        print(f"  {clock} time:")
        for way in every[0]:
            print(f"    {way:12}{_summary([s for s in every if way in s], way, clock)}")


def _summary(every: list[dict[str, Spent]], way: str, clock: str) -> str:
    """Median and worst seconds of a way, and what multiple of ours they are."""
    seconds = [getattr(spent[way], clock) for spent in every]
    text = f"median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s"
    text = f"{text} of {len(seconds)}"
    if way == "ours":
        return text
    ratios = sorted(getattr(s[way], clock) / getattr(s["ours"], clock) for s in every)
    tenth = ratios[len(ratios) // 10]
    middle = statistics.median(ratios)
    return f"{text}; times ours: median {middle:.1f}, p10 {tenth:.1f}, worst {ratios[0]:.1f}"


def whole(weights: Weights, options: argparse.Namespace) -> None:
    """Print the time of every circuit of the model, and of ten by brute force."""
    spent = []
    for name in weights.all():
        a, b = weights.circuit(*name)
        left, right = Factor(weights.table, a), Factor(weights.table, b)
        took, _ = timed(lambda x=left, y=right: top_pairs(x, y, options.k).score)
        spent.append((took.wall, took.cpu, name))
    wall, cpu = (sum(s[n] for s in spent) for n in (0, 1))
    print(f"{len(spent)} circuits: {wall:.1f} s, of processors {cpu:.1f} s; slowest first:")
    print(*(f"{s[0]:.3f} {s[2]}" for s in sorted(spent, reverse=True)[:8]), sep="\n")
    table, k = weights.table, options.k
    jobs = [partial(weights.pairs, table, k, *name) for name in weights.all()]
    took, _ = timed(lambda: list(in_order(jobs, options.threads)))
    print(f"side by side, as `heads` does: {took.wall:.1f} s, of processors {took.cpu:.1f} s")
    for way in (brute, prefiltered):
        ten = [
            timed(lambda a=a, b=b, way=way: way(weights.table, a, b, options.k))[0]
            for a, b in (weights.circuit(*name) for name in drawn(weights, 10, options.seed))
        ]
        wall, cpu = (sum(clock) for clock in zip(*ten, strict=True))
        print(f"{way.__name__}, ten circuits: {wall:.1f} s, of processors {cpu:.1f} s")


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=HOME / "smollm2")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--plain", type=int, default=None, help="brute on the first N only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    for flag in ("--all", "--dense", "--cold"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    weights = Weights(options.model)
    (whole if options.all else compare)(weights, options)
    print(f"peak RSS {peak_rss():.2f} GB")


if __name__ == "__main__":
    main()
