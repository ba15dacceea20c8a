"""Run a live model by a schedule: real blocks, and jumps by maps over the others. [DIN] §6"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..models.passages import Passages
from ..models.replaced import Own, Replaced, Step
from ..models.running import Running
from ..models.states import BATCH_TOKENS, batches, capture_all
from .decoding import Head
from .exit_outcomes import rank_of
from .fitting import Progress
from .maps import Maps
from .schedules import Schedule


@dataclass(frozen=True)
class Jumped:
    """One schedule on some rows: rank of its answer in the model's own order, its surprisal."""

    rank: Int[Tensor, "n"]
    surprisal: Float[Tensor, "n"]
    lines: Int[Tensor, "n"]

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
        batch_tokens: int = BATCH_TOKENS,
        what: str = "score",
        progress: Progress | None = None,
    ) -> list[Jumped]:
        """Every schedule on the same rows, beside the model itself; a batch of texts at a time."""
        parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in schedules]
        lines: list[Tensor] = []
        n_done, n_all = 0, taken.n_tokens * len(schedules)
        with torch.no_grad(), Replaced(self.running) as blocks:
            for batch in batches(taken.passages, batch_tokens):
                blocks.step = None
                final = capture_all(self.running, batch, layers=[self.n_layers])
                lines.append(final.lines)
                for schedule, found in zip(schedules, parts, strict=True):
                    blocks.step = self.step_of(schedule)
                    states = capture_all(self.running, batch, layers=[self.n_layers])
                    found.append(self._compared(states.layers, final.layers))
                    n_done += states.n_tokens
                    if progress:
                        progress(what, n_done, n_all)
        every = torch.cat(lines)
        return [
            Jumped(torch.cat([rank for rank, _ in found]), torch.cat([s for _, s in found]), every)
            for found in parts
        ]

    def step_of(self, schedule: Schedule) -> Step:
        """What each block computes by the schedule, for all positions of a sequence."""
        jumps = dict(schedule.jumps)

        def step(l: int, x: Float[Tensor, "B T d"], own: Own) -> Float[Tensor, "B T d"]:
            if l in jumps:
                return self.maps.apply(x, l, jumps[l])
            return own(x) if l in schedule.blocks else x

        return step

    def _compared(self, mine: dict[int, Tensor], model: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        states, final = mine[self.n_layers], model[self.n_layers]
        ranks, surprisals = [], []
        with torch.no_grad():
            for part in self.head.slices(len(states)):
                own = self.head(final[part])
                top = self.head(states[part]).argmax(-1)
                ranks.append(rank_of(top, own).cpu())
                log_p = own.log_softmax(-1).gather(1, top[:, None])[:, 0]
                surprisals.append(-log_p.double().cpu())
        return torch.cat(ranks), torch.cat(surprisals)
