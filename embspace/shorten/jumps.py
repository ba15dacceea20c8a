"""Run a live model by a schedule: real blocks, and jumps by maps over the others. [DIN] §6"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..live.rerun import Batch, again
from ..live.running import Running
from ..maps.decoding import Head, answered
from ..maps.maps import Maps
from ..progress import Progress
from ..text.passages import Passages
from .schedules import Schedule


@dataclass(frozen=True)
class Jumped:
    """One schedule on some rows: rank of its answer in the model's own order, its surprisal.

    n_lost: rows whose states grew beyond all numbers of the run, for a jump hands blocks what no
    map was fitted on; they have no answer: rank V, infinite surprisal.
    """

    rank: Int[Tensor, "n"]
    surprisal: Float[Tensor, "n"]
    lines: Int[Tensor, "n"]
    n_lost: int = 0

    @property
    def precision(self) -> float:
        """Precision@1."""
        return float((self.rank == 0).double().mean())

    @property
    def worth(self) -> tuple[float, float]:
        """What a search prefers: Precision@1, then the smaller surprisal."""
        return self.precision, -float(self.surprisal.mean())


class Jumping:
    """A live model with maps of all pairs."""

    def __init__(self, running: Running, maps: Maps) -> None:
        self.running, self.maps = running, maps
        self.head = Head(running.model)
        self.n_layers = running.n_layers

    def measure(
        self,
        schedules: Sequence[Schedule],
        taken: Passages,
        *,
        what: str = "score",
        progress: Progress | None = None,
    ) -> list[Jumped]:
        """Every schedule on the same rows, beside the model itself; a batch of texts at a time."""
        parts: dict[Schedule, list[tuple[Tensor, Tensor]]] = {s: [] for s in schedules}
        lines: list[Tensor] = []
        n_done, n_all = 0, taken.n_tokens * len(parts)
        for batch in again(self.running, taken.passages):
            states = batch.states
            lines.append(states.lines)
            ends: dict[Schedule, Tensor] = {}
            for schedule, rows in self._ends(batch, 0, batch.streams.pop(0), list(parts)):
                ends[schedule] = rows
                n_done += states.n_tokens
                if progress:
                    progress(what, n_done, n_all)
            self._compare(ends, states.layers[self.n_layers], parts)
        every = torch.cat(lines)
        return [self._joined(parts[schedule], every) for schedule in schedules]

    def _ends(
        self, batch: Batch, l: int, x: Float[Tensor, "B T d"], schedules: Sequence[Schedule]
    ) -> Iterator[tuple[Schedule, Float[Tensor, "n d"]]]:
        """(schedule, taken rows of its state L), from a state l that all of them reach alike.

        What schedules have in common is run once; a jump to L is made of the taken rows alone, for
        nothing attends to them there.
        """
        L = self.n_layers
        while l < L:
            ways = _ways(schedules, l)
            for schedule in ways.pop(L, ()):
                yield schedule, self.maps.apply(batch.taken(x), l, L)
            if not ways:
                return
            *others, last = ways  # the last one goes on here, so that x need not be kept
            for to in others:
                yield from self._ends(batch, to or l + 1, self._moved(batch, l, to, x), ways[to])
            x, schedules, l = self._moved(batch, l, last, x), ways[last], last or l + 1
        rows = batch.taken(x)
        yield from ((schedule, rows) for schedule in schedules)

    def _moved(
        self, batch: Batch, l: int, to: int, x: Float[Tensor, "B T d"]
    ) -> Float[Tensor, "B T d"]:
        """State l mapped to another one, or through its block (0)."""
        return self.maps.apply(x, l, to) if to else batch.block(l, x)

    def _compare(
        self,
        ends: dict[Schedule, Tensor],
        final: Float[Tensor, "n d"],
        parts: dict[Schedule, list[tuple[Tensor, Tensor]]],
    ) -> None:
        """Add (ranks, surprisals) of each schedule's rows; the model's own logits are made once."""
        with torch.no_grad():
            for part in self.head.slices(len(final)):
                own = self.head(final[part])
                log_p = own.log_softmax(-1)
                for schedule, rows in ends.items():
                    rank, surprisal, _ = answered(self.head(rows[part]), own, log_p)
                    parts[schedule].append((rank.cpu(), surprisal.cpu()))

    def _joined(self, parts: Sequence[tuple[Tensor, Tensor]], lines: Tensor) -> Jumped:
        ranks, surprisals = (torch.cat(each) for each in zip(*parts, strict=True))
        return Jumped(ranks, surprisals, lines, int((ranks == self.head.n_tokens).sum()))


BLOCK = 0  # where the next step is no jump: no jump leads to state 0


def _ways(schedules: Sequence[Schedule], l: int) -> dict[int, list[Schedule]]:
    """Where a schedule goes on from state l: the state that it jumps to, or BLOCK -> schedules."""
    found: dict[int, list[Schedule]] = {}
    for schedule in schedules:
        to = BLOCK
        if l not in schedule.blocks:
            left = (k for k in range(l, schedule.n_layers) if k in schedule.blocks)
            to = next(left, schedule.n_layers)
        found.setdefault(to, []).append(schedule)
    return found
