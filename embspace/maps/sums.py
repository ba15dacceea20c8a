"""Sums over rows that determine every least-squares map: they add, so no row need be kept. [DIN]

For a source x and a target y (states of two layers, or the two ends of a sub-module) all that a map
and its r² depend on are Σ x^T y, Σ x^T x, Σ y² by coordinate, Σ x, Σ y and the number of rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import EmbspaceError, MapsError
from .whitening import inverse_of, root_of, turn

Products = Literal["float64", "float32"]
CHUNK = 1024  # rows multiplied at a time; in float32 more, while they are this many numbers:
MOST_WAITING = 1 << 27


@dataclass(frozen=True)
class Plan:
    """Which maps are wanted: the spaces (all d wide, in order), and the targets of each source."""

    spaces: tuple[str, ...]
    targets: dict[str, tuple[str, ...]]

    @classmethod
    def of_layers(cls, n_layers: int, pairs: str | Iterable[tuple[int, int]] = "final") -> "Plan":
        """Maps between states: "final" (every l to L), "all" (every l < l'), or a list of pairs.

        Raises EmbspaceError for a pair that does not exist.
        """
        if pairs == "final":
            wanted = [(a, n_layers) for a in range(n_layers)]
        elif pairs == "all":
            wanted = [(a, b) for a in range(n_layers) for b in range(a + 1, n_layers + 1)]
        elif isinstance(pairs, str):
            raise EmbspaceError(f"unknown pairs {pairs[:80]!r}: use final, all or a list.")
        else:
            wanted = sorted({_pair(pair, n_layers) for pair in pairs})
        targets: dict[str, tuple[str, ...]] = {}
        for source, target in wanted:
            targets[str(source)] = (*targets.get(str(source), ()), str(target))
        used = {int(a) for a in targets} | {int(b) for row in targets.values() for b in row}
        return cls(tuple(str(a) for a in sorted(used)), targets)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every (source, target)."""
        return [(source, target) for source, row in self.targets.items() for target in row]

    def n_bytes(self, d: int) -> int:
        """Memory of the sums, in bytes."""
        return 8 * d * d * sum(1 + len(row) for row in self.targets.values())


def _pair(pair: Any, n_layers: int) -> tuple[int, int]:
    try:
        source, target = (int(end) for end in pair)
    except (TypeError, ValueError) as error:
        raise EmbspaceError(f"a pair is two layer numbers, not {str(pair)[:60]!r}.") from error
    if not 0 <= source < target <= n_layers:
        raise EmbspaceError(
            f"there is no map {source} → {target}: it takes two states of 0 to {n_layers}, the "
            "later one second."
        )
    return source, target


class Sums:
    """Sufficient statistics of all maps of a plan, in float64.

    Rows wait until there are enough to multiply at once. `products` "float32" multiplies
    in float32 and accumulates over chunks in float64: from the first chunk it takes a vector near
    the mean and for each source a matrix R (`whitening`), and multiplies z = (x - c) R^-1, which no
    near dependence of coordinates amplifies; both are put back in float64 when a moment is asked
    for. R takes 2 d rows: what is multiplied before there are so many is so in float64. Rows may
    come in any order and number.
    """

    def __init__(
        self,
        plan: Plan,
        d: int,
        *,
        products: Products = "float64",
        device: str | torch.device = "cpu",
    ) -> None:
        self.plan, self.d, self.device = plan, d, torch.device(device)
        self.products: Products = products
        self.n = 0
        zeros = {"dtype": torch.float64, "device": self.device}
        k = len(plan.spaces)
        self.shift = torch.zeros(k, d, **zeros)
        self.total = torch.zeros(k, d, **zeros)
        self.squares = torch.zeros(k, d, **zeros)
        self.roots = torch.zeros(0, d, d, **zeros)  # R of each source, once there are any
        # for each source: with itself, then with each target, side by side
        self.blocks = {
            source: torch.zeros(d, d * (1 + len(row)), **zeros)
            for source, row in plan.targets.items()
        }
        self.chunk = (
            CHUNK if products == "float64" else max(CHUNK, min(4 * CHUNK, MOST_WAITING // (k * d)))
        )
        self._waiting = torch.empty(0, k, d, **zeros)
        self._n_waiting = 0
        self.rounded_in: dict[str, Tensor] = {}  # of roots that are no more: see `as_multiplied`
        self._inverses: list[Tensor] = []
        self._product = torch.empty(self.d, 0, device=self.device)
        self._at = {space: n for n, space in enumerate(plan.spaces)}
        self._spans = {source: self._span(source) for source in plan.targets}

    # accumulate --------------------------------------------------------------------------
    def add(self, rows: Mapping[str, Float[Tensor, "n d"]]) -> None:
        """Add rows of every space of the plan; row i of each belongs together."""
        n = len(rows[self.plan.spaces[0]])
        if n:
            self._make_room(rows[self.plan.spaces[0]].dtype)
        start = 0
        while start < n:
            m = min(self.chunk - self._n_waiting, n - start)
            here = self._waiting[self._n_waiting : self._n_waiting + m]
            for at, space in enumerate(self.plan.spaces):
                here[:, at] = rows[space][start : start + m]
            start, self._n_waiting, self.n = start + m, self._n_waiting + m, self.n + m
            if self._n_waiting == self.chunk:
                self.settle()

    def _make_room(self, given: torch.dtype) -> None:
        """Room for rows that wait: in float32 where that holds them and products are of it."""
        single = self.products == "float32" and given != torch.float64
        wanted = torch.float32 if single else torch.float64
        if len(self._waiting) and self._waiting.dtype in (wanted, torch.float64):
            return
        self.settle()
        self._waiting = self.total.new_empty(self.chunk, *self.total.shape, dtype=wanted)

    def settle(self) -> None:
        """Multiply the rows that wait, as reading any sum does."""
        if self._n_waiting:
            self._multiply(self._waiting[: self._n_waiting])
            self._n_waiting = 0

    def _multiply(self, rows: Float[Tensor, "n spaces d"]) -> None:
        if self.products == "float32":
            if len(rows) == self.n:
                self.shift = rows[:CHUNK].double().mean(0)
            if not len(self.roots):
                self._whiten(rows)
        side_by_side = []
        for some in rows.split(CHUNK):
            exact = some.double() - self.shift
            self.total += exact.sum(0)
            self.squares += exact.square().sum(0)
            if len(self.roots):
                side_by_side.append(exact.flatten(1).float())
            else:
                self._multiply_double(exact.flatten(1))
        if side_by_side:
            self._multiply_single(torch.cat(side_by_side))

    def _whiten(self, rows: Float[Tensor, "n spaces d"]) -> None:
        """Take R of every source, once there are rows enough for it; sums so far are turned by it.

        Sums about 0 stay so: without a vector near the mean float32 rows have lost too much.
        """
        before, least = self.n - len(rows), 2 * self.d
        if self.n < least or not bool(self.shift.any()):
            return
        roots = []
        for source, block in self.blocks.items():
            x = rows[:, self._at[source]].double() - self.shift[self._at[source]]
            roots.append(root_of((block[:, : self.d] + x.T @ x) / (before + len(rows))))
            if before:
                turn(block, roots[-1])
        self.roots = torch.stack(roots)

    def _multiply_double(self, side_by_side: Float[Tensor, "n spaces*d"]) -> None:
        for source, block in self.blocks.items():
            block.addmm_(self._rows_of(side_by_side, source).T, self._columns(side_by_side, source))

    def _multiply_single(self, side_by_side: Float[Tensor, "n spaces*d"]) -> None:
        """Add products in float32 of whitened sources with themselves and with their targets."""
        if not self._inverses:
            self._inverses = [inverse_of(root) for root in self.roots]
        for inverse, (source, block) in zip(self._inverses, self.blocks.items(), strict=True):
            z = self._rows_of(side_by_side, source) @ inverse
            y = self._columns(side_by_side, source)[:, self.d :]
            block[:, : self.d] += torch.mm(z.T, z, out=self._room(self.d))
            block[:, self.d :] += torch.mm(z.T, y, out=self._room(y.shape[1]))

    def _room(self, width: int) -> Tensor:
        """Room for one product in float32, taken once: fresh memory is slow to come by."""
        if self._product.shape[1] < width:
            self._product = torch.empty(self.d, width, device=self.device)
        return self._product.flatten()[: self.d * width].view(self.d, width)

    def _span(self, source: str) -> slice | Tensor:
        """Columns of a source and its targets: a slice where they lie side by side."""
        at = [self._at[space] for space in (source, *self.plan.targets[source])]
        if at == list(range(at[0], at[0] + len(at))):
            return slice(at[0] * self.d, (at[-1] + 1) * self.d)
        columns = [torch.arange(a * self.d, (a + 1) * self.d) for a in at]
        return torch.cat(columns).to(self.device)

    def _rows_of(self, side_by_side: Tensor, source: str) -> Tensor:
        at = self._at[source] * self.d
        return side_by_side[:, at : at + self.d]

    def _columns(self, side_by_side: Tensor, source: str) -> Tensor:
        return side_by_side[:, self._spans[source]]

    # read --------------------------------------------------------------------------------
    def mean(self, space: str) -> Float[Tensor, "d"]:
        """Mean of a space's rows."""
        self.settle()
        at = self._at[space]
        return self.shift[at] + self.total[at] / max(self.n, 1)

    def energy(self, space: str) -> Float[Tensor, "d"]:
        """Σ y² by coordinate."""
        self.settle()
        c, t = self.shift[self._at[space]], self.total[self._at[space]]
        return self.squares[self._at[space]] + 2 * c * t + self.n * c * c

    def variation(self, space: str) -> Float[Tensor, "d"]:
        """Σ (y - mean)² by coordinate."""
        self.settle()
        t = self.total[self._at[space]]
        return (self.squares[self._at[space]] - t * t / max(self.n, 1)).clamp_min(0)

    def moments(
        self, source: str, targets: tuple[str, ...], *, centred: bool = False
    ) -> Float[Tensor, "d k"]:
        """Σ x^T [x y₁ y₂ …] for the source and some of its targets, about 0 or about the means."""
        block = self.about_shift(source, targets)
        spaces = (source, *targets)
        t = torch.cat([self.total[self._at[s]] for s in spaces])
        x = self.total[self._at[source]]
        if centred:
            return block - torch.outer(x, t) / max(self.n, 1)
        if not bool(self.shift.any()):
            return block
        c = torch.cat([self.shift[self._at[s]] for s in spaces])
        cx = self.shift[self._at[source]]
        block = block if len(self.roots) else block.clone()  # of roots: a new one already
        return block.addr_(cx, t + self.n * c).addr_(x, c)

    def about_shift(self, source: str, targets: tuple[str, ...] = ()) -> Float[Tensor, "d k"]:
        """Σ (x - c)^T [x - c, y₁ - c₁, …], c the vectors near the means (0 of float64 products)."""
        self.settle()
        block = self._block(source, targets)
        if not len(self.roots):
            return block
        root = self.roots[list(self.blocks).index(source)]
        block = root.T @ block
        block[:, : self.d] = block[:, : self.d] @ root
        return block

    def as_multiplied(self, source: str) -> Float[Tensor, "d d"] | None:
        """Σ of a source's products in the coordinates that they were rounded to float32 in, or
        None where none was."""
        self.settle()
        if len(self.roots):
            return self.blocks[source][:, : self.d]
        return self.rounded_in.get(source)

    def _block(self, source: str, targets: tuple[str, ...]) -> Tensor:
        every = self.plan.targets[source]
        if targets == every:
            return self.blocks[source]
        parts = self.blocks[source].split(self.d, dim=1)
        return torch.cat([parts[0], *(parts[1 + every.index(target)] for target in targets)], 1)

    # combine -----------------------------------------------------------------------------
    def merge(self, other: "Sums") -> None:
        """Add another run's sums of the same plan. Raises MapsError for another plan."""
        if (other.plan, other.d) != (self.plan, self.d):
            raise MapsError("these sums are of other maps and cannot be added.")
        self.unshift()
        theirs = other.copy()
        theirs.unshift()
        for mine, more in zip(self.tensors().values(), theirs.tensors().values(), strict=True):
            mine += more.to(self.device)
        self.rounded_in = self.rounded_in or theirs.rounded_in
        self.n += other.n

    def unshift(self) -> None:
        """Make all sums those about 0; products of further rows are then in float64."""
        self.settle()
        if len(self.roots):
            self.rounded_in = {s: b[:, : self.d].clone() for s, b in self.blocks.items()}
        for source in self.blocks:
            self.blocks[source] = self.moments(source, self.plan.targets[source]).clone()
        self.squares = torch.stack([self.energy(space) for space in self.plan.spaces])
        self.total = self.total + self.n * self.shift
        self.shift = torch.zeros_like(self.shift)
        self.roots, self._inverses = self.roots[:0], []

    def copy(self) -> "Sums":
        """An independent copy."""
        twin = Sums(self.plan, self.d, products=self.products, device=self.device)
        twin.load_tensors(self.tensors(), self.n)
        twin.rounded_in = dict(self.rounded_in)
        return twin

    # keep --------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        """All sums by name, and the rows that wait; with `n` they are the whole state."""
        own = {"shift": self.shift, "total": self.total, "squares": self.squares}
        own |= {"roots": self.roots, "waiting": self._waiting[: self._n_waiting]}
        return own | {f"block.{source}": block for source, block in self.blocks.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor], n: int) -> None:
        """Take over the state of other sums of the same plan. Raises MapsError for wrong shapes."""
        for name, mine in self.tensors().items():
            given = tensors.get(name)
            if given is None or not self._fits(name, given, mine):
                raise MapsError("the saved sums do not belong to these maps.")
        for name in ("shift", "total", "squares", "roots"):
            setattr(self, name, tensors[name].to(self.device).clone())
        for source in self.blocks:
            self.blocks[source] = tensors[f"block.{source}"].to(self.device).clone()
        self._inverses, self.rounded_in = [], {}
        self._n_waiting = len(tensors["waiting"])
        waiting = tensors["waiting"].to(self.device)
        self._waiting = waiting.new_empty(self.chunk, *self.total.shape)
        self._waiting[: self._n_waiting] = waiting
        self.n = n

    def _fits(self, name: str, given: Tensor, mine: Tensor) -> bool:
        """Whether a saved tensor has the shape of ours, or one that it may grow to."""
        if name == "waiting":
            kinds = (torch.float32, torch.float64)
            fits = given.shape[1:] == mine.shape[1:] and len(given) < self.chunk
            return fits and given.dtype in kinds
        if given.dtype != mine.dtype:
            return False
        if name == "roots":
            return given.shape[1:] == mine.shape[1:] and len(given) in (0, len(self.blocks))
        return given.shape == mine.shape


def needs_room(plan: Plan, d: int, *, sets: int = 2) -> int:
    """Bytes that a fit of a plan holds at most: its sums for fitting and scoring, and one solve."""
    widest = max((len(row) for row in plan.targets.values()), default=0)
    numbers = CHUNK * len(plan.spaces) * d
    waiting = 4 * max(2 * numbers, min(4 * numbers, MOST_WAITING))
    return sets * (plan.n_bytes(d) + waiting) + 2 * waiting + 8 * d * d * (2 * widest + 6)
