"""What a run leaves at chosen positions: states, and the most activated vectors of every block."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import EmbspaceError
from ..text.passages import Passages
from .running import Running
from .tape import BlockRecord, activations, mixed_values, recorded


@dataclass
class Used:
    """The m most activated vectors of one layer at each position, the strongest first.

    neurons: None in a mixture; columns: of W_V and rows of W_O, numbered head · d_h + j.
    """

    neurons: Int[Tensor, "n m"] | None
    columns: Int[Tensor, "n m"]


@dataclass
class Taken:
    """The line of each position, its state after each block, and what each block used there."""

    lines: Int[Tensor, "n"]
    states: list[Float[Tensor, "n d"]]
    used: list[Used]


def take(running: Running, chosen: Passages, m: int) -> Taken:
    """Run all passages, and keep this of every position taken, in the order of the passages.

    Raises EmbspaceError where there are fewer than two positions.
    """
    taker = _Taker(running, chosen, m)
    for _ in recorded(running, [p.ids for p in chosen.passages], taker.note):
        pass
    return Taken(taker.lines, taker.states, taker.used)


class _Taker:
    def __init__(self, running: Running, chosen: Passages, m: int) -> None:
        self.model, self.chosen, self.m = running.model, chosen.passages, m
        ends = torch.tensor([len(p.keep) for p in self.chosen]).cumsum(0).tolist()
        self.where = [
            range(end - len(p.keep), end) for end, p in zip(ends, self.chosen, strict=True)
        ]
        self.lines = torch.tensor([p.line for p in self.chosen for _ in p.keep])
        if len(self.lines) < 2:
            raise EmbspaceError("one position cannot be permuted: give more text.")
        self.states: list[Tensor] = []
        self.used: list[Used] = []

    def note(self, record: BlockRecord, batch: list[int], ids: Tensor) -> None:
        """Keep the taken positions of one block of one batch."""
        rows = torch.tensor([row for row, i in enumerate(batch) for _ in self.where[i]])
        places = torch.tensor([at for i in batch for at in self.chosen[i].keep])
        to = torch.tensor([at for i in batch for at in self.where[i]])
        acts, mixed = activations(self.model, record), mixed_values(record)
        if record.layer == len(self.used):
            self._room(record, acts, mixed)
        used = self.used[record.layer]
        self.states[record.layer][to] = record.state_out[rows, places]
        for kept, values in ((used.neurons, acts), (used.columns, mixed)):
            if kept is not None and values is not None:
                kept[to] = values[rows, places].topk(kept.shape[1]).indices.cpu()

    def _room(self, record: BlockRecord, acts: Tensor | None, mixed: Tensor) -> None:
        n = len(self.lines)
        neurons, columns = (
            None if x is None else torch.empty(n, min(self.m, x.shape[-1]), dtype=torch.long)
            for x in (acts, mixed)
        )
        assert columns is not None
        self.used.append(Used(neurons, columns))
        self.states.append(record.state_out.new_empty(n, self.model.d))
