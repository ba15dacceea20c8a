"""How well E^T and E^+ invert E when only the k largest entries are kept. [DAR] App. A."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import positive
from ..checking import seed as checked_seed
from ..errors import EmbspaceError
from ..memory import Needs, flops_per_second
from ..notation import Inverse
from ..read.forecast import needs_of_vectors
from ..read.vectors import FeedForwardReading
from ..results import Result

if TYPE_CHECKING:
    from ..weights.model import Model

KEPT = (10, 30, 100, 300, 500, 1000, 3000, 10_000, 30_000)
COLUMNS = 8192  # of the vocabulary that a product takes at a time


@dataclass(frozen=True)
class InversePoint:
    """The cosine of one kind of vectors with one inverse and one k."""

    vectors: str  # "normal", "values" or "states"
    inverse: Inverse
    k: int
    cosine: float

    def to_dict(self) -> dict[str, Any]:
        """The four fields as a dict."""
        return {
            "vectors": self.vectors,
            "inverse": self.inverse,
            "k": self.k,
            "cosine": self.cosine,
        }


@dataclass(frozen=True)
class InverseCheck(Result):
    """Cosines between X X^T and its copy through vocabulary space, for E^T and E^+.

    `lengths`: for each kind of vectors the median and the largest Euclidean length; a few very
    long vectors own the cosine.
    """

    points: tuple[InversePoint, ...]
    lengths: dict[str, tuple[float, float]]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def cosine(self, vectors: str, inverse: Inverse, k: int) -> float:
        """The cosine of one point. Raises EmbspaceError where it was not measured."""
        for point in self.points:
            if (point.vectors, point.inverse, point.k) == (vectors, inverse, k):
                return point.cosine
        raise EmbspaceError(f"{vectors} vectors with {inverse} at k = {k} were not measured.")

    def to_dict(self) -> dict[str, Any]:
        """Every point, and the lengths of the vectors."""
        return {
            "points": [point.to_dict() for point in self.points],
            "lengths": {
                name: {"median": median, "largest": largest}
                for name, (median, largest) in self.lengths.items()
            },
            "settings": self.settings,
            "provenance": self.provenance,
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a point."""
        return [point.to_dict() for point in self.points]


def inverse_check(
    model: "Model",
    *,
    n: int = 300,
    kept: Iterable[int] | None = None,
    states: Float[Tensor, "m d"] | None = None,
    seed: int = 0,
) -> InverseCheck:
    """Cosine between X X^T and keep_k(X E) keep_k(X E'^T)^T, flattened, for E' = E^T and E^+.

    keep_k zeroes all but the k entries of a row that are largest in absolute value. X (n × d):
    normal vectors, FF values of all layers, and `states` where given; n of each by `seed`.
    k from 10 to 30,000, at most V, unless `kept` lists others; V itself is measured as well.
    Raises EmbspaceError for a k or n below 1, or no states.
    """
    n, seed = positive(n, "the number of vectors"), checked_seed(seed)
    grid = kept_grid(KEPT if kept is None else kept, len(model.vocabulary))
    random = torch.Generator().manual_seed(seed)
    groups = list(_vectors(model, n, states, random))
    points = [point for name, x in groups for point in _points(model, name, x, grid)]
    lengths = {name: _lengths(x) for name, x in groups}
    settings = {"n": {name: len(x) for name, x in groups}, "kept": grid, "seed": seed}
    notes = tuple(_long(name, *ends) for name, ends in lengths.items() if ends[1] > 10 * ends[0])
    return InverseCheck(tuple(points), lengths, settings, model.provenance, notes)


def needs_of_inverse(model: "Model", n: int, n_kept: int) -> Needs:
    """Memory and time of `inverse_check`: scores and ranks of n vectors, twice, and products."""
    V, base = len(model.vocabulary), needs_of_vectors(model, 6 * n, passes=1)
    width = torch.empty(0, dtype=model.dtype).element_size()
    products = 6 * n_kept * 2.0 * n * n * V / flops_per_second()
    return Needs(base.private + 2 * n * V * (width + 4), base.mapped, base.seconds + products)


def kept_grid(kept: Iterable[int], V: int) -> list[int]:
    """The k that are measured, ascending: those up to V, and V."""
    return sorted({min(positive(k), V) for k in kept} | {V})


def _vectors(
    model: "Model", n: int, states: Tensor | None, random: torch.Generator
) -> Iterator[tuple[str, Tensor]]:
    yield "normal", torch.randn(n, model.d, generator=random).to(model.device, model.dtype)
    yield "values", _values(model, n, random)
    if states is not None:
        if not len(states):
            raise EmbspaceError("no hidden states were given.")
        chosen = torch.randperm(len(states), generator=random)[:n]
        yield "states", states[chosen].to(model.device, model.dtype)


def _values(model: "Model", n: int, random: torch.Generator) -> Float[Tensor, "n d"]:
    """Values of random neurons: as many of each layer, of a random expert where there are many."""
    parts: list[Tensor] = []
    for layer in range(model.n_layers):
        share = n * (layer + 1) // model.n_layers - n * layer // model.n_layers
        if share:
            experts = model.experts(layer)
            expert = experts[int(torch.randint(len(experts), (1,), generator=random))]
            values = FeedForwardReading(model, layer, expert).values.vectors
            parts.append(values[torch.randperm(len(values), generator=random)[:share]])
    return torch.cat(parts)


def _points(model: "Model", name: str, x: Tensor, grid: list[int]) -> Iterator[InversePoint]:
    space = model.vocabulary
    true = x.double() @ x.double().T
    there = space.project(x)
    ranks = _ranks(there)
    for inverse in get_args(Inverse):
        same = inverse == "transpose"
        back = there if same else space.project(space.back(x.T, inverse).T)  # X E'^T
        copies = _copies(there, ranks, back, ranks if same else _ranks(back), grid)
        for k, copy in zip(grid, copies, strict=True):
            yield InversePoint(name, inverse, k, _cosine(true, copy))  # type: ignore[arg-type]


def _ranks(scores: Float[Tensor, "n V"]) -> Int[Tensor, "n V"]:
    """Place of each entry in its row by absolute value, 0 the largest, ties by id."""
    ranks = torch.empty(scores.shape, dtype=torch.int32, device=scores.device)
    places = torch.arange(scores.shape[1], dtype=torch.int32, device=scores.device)
    for row, out in zip(scores, ranks, strict=True):
        out[row.abs().argsort(descending=True, stable=True)] = places
    return ranks


def _copies(
    a: Float[Tensor, "n V"],
    rank_a: Int[Tensor, "n V"],
    b: Float[Tensor, "n V"],
    rank_b: Int[Tensor, "n V"],
    grid: list[int],
) -> list[Float[Tensor, "n n"]]:
    """keep_k(A) keep_k(B)^T for each k, a block of the vocabulary at a time."""
    sums = [torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device) for _ in grid]
    for start in range(0, a.shape[1], COLUMNS):
        at = slice(start, start + COLUMNS)
        parts = (a[:, at], rank_a[:, at], b[:, at], rank_b[:, at])
        for k, total in zip(grid, sums, strict=True):
            total += (parts[0] * (parts[1] < k)) @ (parts[2] * (parts[3] < k)).T
    return sums


def _cosine(a: Tensor, b: Tensor) -> float:
    a, b = a.flatten(), b.flatten()
    return float(a @ b / (a.norm() * b.norm()).clamp_min(1e-300))


def _lengths(x: Tensor) -> tuple[float, float]:
    lengths = x.double().norm(dim=1)
    return float(lengths.median()), float(lengths.max())


def _long(name: str, median: float, largest: float) -> str:
    return (
        f"The longest of the {name} is {largest / median:.0f} times as long as their median: "
        "few vectors own that cosine."
    )
