"""States of known structure, and a few sentences for the small models."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from embspace.mapping.sums import Plan, Sums
from embspace.models.corpus import Corpus

WORDS = "cats dogs her brother his sister Paris Rome London doctors heal teach grow wheat"


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """120 different lines of 2 to 11 words."""
    words = WORDS.split()
    lines = (
        " ".join(words[(7 * n + 5 * t * t + n * t) % len(words)] for t in range(2 + n % 10))
        for n in range(120)
    )
    return Corpus(tuple(f"{line} {n}" for n, line in enumerate(lines)), "lines")


@pytest.fixture(scope="session")
def chain() -> Callable[..., list[np.ndarray]]:
    """States in which each layer is a linear map of the one before, plus noise."""

    def make(n: int, d: int, layers: int, *, seed: int = 0, mean: float = 0.0, noise: float = 0.3):
        random = np.random.default_rng(seed)
        maps = np.random.default_rng(99)
        found = [random.normal(size=(n, d)) + mean]
        for _ in range(layers):
            A = maps.normal(size=(d, d)) / np.sqrt(d)
            found.append(found[-1] @ A + noise * random.normal(size=(n, d)))
        return found

    return make


@pytest.fixture(scope="session")
def summed() -> Callable[..., Sums]:
    """Sums of all pairs of a list of states, added in pieces of a given size."""

    def make(states: list[np.ndarray], pieces: int = 0, *, pairs="all", **options) -> Sums:
        plan = Plan.of_layers(len(states) - 1, pairs)
        sums = Sums(plan, states[0].shape[1], **options)
        n = len(states[0])
        for start in range(0, n, pieces or n):
            part = slice(start, start + (pieces or n))
            sums.add({str(l): torch.from_numpy(x[part].copy()) for l, x in enumerate(states)})
        return sums

    return make
