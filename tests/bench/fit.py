"""How much faster all maps and their held-out r² come from shared sums than pair by pair.

    python tests/bench/fit.py                       31 × 576, 9,000 rows to fit, 3,000 to score
    python tests/bench/fit.py --every               scikit-learn on all pairs: nothing extrapolated
    python tests/bench/fit.py --states FILE         real ones: "states" (layers × rows × d) in it
    python tests/bench/fit.py --layers 7 --d 64 --rows 900 --held 300       a small try

Ours: sums of all pairs l < l' over the rows in pieces of 512, as they come from a model, the maps
and the r² of every pair on the held-out rows, with float64 and with float32 products.
scikit-learn: LinearRegression(fit_intercept=False) in float64 and r2_score on the held-out rows,
for some pairs drawn by seed; its time for all pairs is their mean times the number of pairs, and
said to be. The conversion of its rows to float64 is not counted. Without --states the rows are
random: each layer a linear map of the one before plus noise, most of the variance in a quarter of
the directions.
Targets: 12 times faster with float64 products, 20 with float32 (r² within 1e-4).
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from torch import Tensor

from embspace.maps.solve import r2_of, r2_of_identity, solve
from embspace.maps.sums import Plan, Products, Sums

PIECE = 512
TARGETS = {"float64": 12.0, "float32": 20.0}
Pair = tuple[int, int]


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of all processors together."""

    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> tuple[Spent, Any]:
    """Seconds and result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu), result


def made(options: argparse.Namespace) -> Tensor:
    """Random states (layers × rows × d): a quarter of the directions carry most of the variance."""
    generator = torch.Generator().manual_seed(options.seed)
    n, d = options.rows + options.held, options.d

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    rank = max(1, d // 4)
    found = torch.empty(options.layers, n, d)
    found[0] = normal(n, rank) @ normal(rank, d) / rank**0.5 + 0.3 * normal(n, d) + normal(d)
    for l in range(1, options.layers):
        step = torch.eye(d) + 0.3 * normal(d, d) / d**0.5
        found[l] = found[l - 1] @ step + 0.2 * normal(n, d)
    return found


def given(path: Path) -> Tensor:
    """States that were kept of a real model."""
    from safetensors.torch import load_file

    return load_file(path)["states"].float()


def summed(plan: Plan, states: Tensor, products: Products) -> Sums:
    """Sums over rows in pieces, as a model yields them."""
    sums = Sums(plan, states.shape[-1], products=products)
    for start in range(0, states.shape[1], PIECE):
        piece = states[:, start : start + PIECE]
        sums.add({str(l): x for l, x in enumerate(piece)})
    return sums


def ours(states: Tensor, n_fit: int, products: Products) -> dict[Pair, tuple[float, float]]:
    """(r² of the map, r² of the identity) of every pair on the held-out rows."""
    plan = Plan.of_layers(len(states) - 1, "all")
    fitted = summed(plan, states[:, :n_fit], products)
    held = summed(plan, states[:, n_fit:], products)
    found = {}
    for source in plan.targets:
        solution = solve(fitted, source)
        maps, identity = r2_of(held, source, solution), r2_of_identity(held, source)
        found |= {
            (int(source), int(target)): (maps[target].mean, identity[target].mean)
            for target in maps
        }
    return found


def theirs(states: Tensor, n_fit: int, pair: Pair) -> tuple[Spent, float]:
    """scikit-learn's time and r² of one pair."""
    x, y = (states[l].double().numpy() for l in pair)

    def work() -> float:
        fitted = LinearRegression(fit_intercept=False).fit(x[:n_fit], y[:n_fit])
        return float(r2_score(y[n_fit:], fitted.predict(x[n_fit:])))

    return timed(work)


def main() -> None:
    """Run what the options ask for and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=Path)
    for name, default in (("layers", 31), ("d", 576), ("rows", 9000), ("held", 3000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pairs", type=int, default=6, help="pairs that scikit-learn fits")
    parser.add_argument("--every", action="store_true", help="scikit-learn fits all pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    states = given(options.states) if options.states else made(options)
    pairs = [(a, b) for a in range(len(states)) for b in range(a + 1, len(states))]
    drawn = pairs if options.every else random.Random(options.seed).sample(pairs, options.pairs)
    print(
        f"{len(states)} states of {states.shape[-1]}, {options.rows} rows to fit, "
        f"{states.shape[1] - options.rows} to score, {len(pairs)} pairs, {options.threads} threads",
        flush=True,
    )
    mine = {}
    for products in ("float64", "float32"):
        spent, found = timed(lambda p=products: ours(states, options.rows, p))
        mine[products] = (spent, found)
        print(f"ours, {products} products: {spent.wall:.2f} s ({spent.cpu:.2f} s cpu)", flush=True)
    compare(states, options, drawn, len(pairs), mine)
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def compare(
    states: Tensor,
    options: argparse.Namespace,
    drawn: list[Pair],
    n_pairs: int,
    mine: dict[str, tuple[Spent, dict[Pair, tuple[float, float]]]],
) -> None:
    """scikit-learn on the drawn pairs, the ratios, and the largest difference of r²."""
    found = {pair: theirs(states, options.rows, pair) for pair in drawn}
    total = Spent(
        *(
            sum(getattr(spent, clock) for spent, _ in found.values()) / len(found) * n_pairs
            for clock in Spent._fields
        )
    )
    said = "measured" if len(drawn) == n_pairs else f"extrapolated from {len(drawn)} pairs"
    print(f"scikit-learn, all pairs: {total.wall:.1f} s ({total.cpu:.1f} s cpu), {said}")
    for products, (spent, r2) in mine.items():
        off = max(abs(r2[pair][0] - true) for pair, (_, true) in found.items())
        print(
            f"  {products}: {total.wall / spent.wall:.1f} times by the wall, "
            f"{total.cpu / spent.cpu:.1f} by processor time (target {TARGETS[products]:g}); "
            f"r² off by at most {off:.1e}"
        )


if __name__ == "__main__":
    main()
