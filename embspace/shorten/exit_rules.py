"""When to leave: after a fixed number of blocks, or once a prediction is sure enough. [DIN] §6"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import EmbspaceError
from .outcomes import Outcomes

TAU = 4.0
FIRST = 1  # a confidence exit runs one block at least, as in the official code
NEVER = 1.112  # λ at which the threshold is over 1 everywhere
LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1, NEVER)


def finite(lam: Any) -> float:
    """λ as a number. Raises EmbspaceError."""
    try:
        if abs(float(lam)) < float("inf"):
            return float(lam)
    except (TypeError, ValueError):
        pass
    raise EmbspaceError(f"λ must be a number, not {str(lam)[:40]!r}.")


def threshold(lam: float, position: int, mean_length: float) -> float:
    """0.9 λ + 0.1 exp(−τ t / N), τ = 4, of the position t (from 0) with mean length N."""
    return 0.9 * lam + 0.1 * math.exp(-TAU * position / mean_length)


def margins(
    outcomes: Outcomes, mean_length: float, layers: Sequence[int] | None = None
) -> Float[Tensor, "n L"]:
    """The λ below which each row leaves after each block 0 … L−1: gap > threshold ⇔ λ < margin.

    (gap − 0.1 exp(−τ t / N)) / 0.9; −∞ where no exit is allowed (state 0, layers not given).
    """
    late = 0.1 * torch.exp(-TAU * outcomes.positions.double() / mean_length)
    found = (outcomes.gap[:, :-1].double() - late[:, None]) / 0.9
    allowed = set(range(FIRST, outcomes.n_layers) if layers is None else layers)
    closed = [l for l in range(outcomes.n_layers) if l not in allowed or l < FIRST]
    found[:, closed] = -math.inf
    return found


def confidence_exits(margin: Float[Tensor, "n L"], lam: float) -> Int[Tensor, "n"]:
    """Blocks run by each row: the first l whose margin is over λ, else L."""
    sure = margin > lam
    first = sure.int().argmax(1)
    return torch.where(sure.any(1), first, margin.shape[1])


def fixed_exits(n_blocks: int, n_rows: int) -> Int[Tensor, "n"]:
    """Every row leaves after the same number of blocks."""
    return torch.full((n_rows,), n_blocks, dtype=torch.long)


def ranks_at(outcomes: Outcomes, exits: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
    """The rank of what each row answers where it leaves."""
    return outcomes.rank.gather(1, exits[:, None])[:, 0]


def histogram(exits: Int[Tensor, "n"], n_layers: int) -> tuple[int, ...]:
    """How many rows leave after 0 … L blocks."""
    return tuple(torch.bincount(exits, minlength=n_layers + 1).tolist())
