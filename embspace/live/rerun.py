"""Run the blocks of a live model again, on the batch it just read: from any state, in any order.

What many changed runs of one batch have in common is computed once: its embedding, its masks, and
the blocks before the first change.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..memory import give_back
from ..text.passages import Passage
from ..weights.rotary import alike_up_to
from .capture import States, batches, capture
from .hooks import eval_mode
from .replace import Own, Replaced
from .running import Running


@dataclass(frozen=True)
class Batch:
    """A batch of passes that the model has read, and its blocks as the model called them.

    states: the rows at the taken positions, of the layers asked for; streams: l -> state l at every
    position of the batch, padding too.
    """

    states: States
    streams: dict[int, Float[Tensor, "B T d"]]
    _blocks: tuple[Own, ...]
    _rows: Tensor
    _places: Tensor
    _where: torch.device

    def block(self, l: int, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
        """What block l makes of x; a copy goes in, for some blocks add to their input in place."""
        with torch.no_grad():
            return self._blocks[l](x.clone())

    def taken(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "n d"]:
        """The rows of x at the taken positions, as those of `states` are."""
        found = x[self._rows.to(x.device), self._places.to(x.device)]
        return found.to(self._where, torch.float32)


def again(
    running: Running,
    passes: Sequence[Passage],
    *,
    layers: Iterable[int] = (0,),
    batch_tokens: int | None = None,
) -> Iterator[Batch]:
    """Read passes batch by batch; after each, its blocks can be run again.

    layers: the states (of 0 … L) whose rows are kept; of those before L the streams too.
    Raises StateError where a taken row of the model itself holds NaN or infinity.
    """
    wanted = sorted({*layers, running.n_layers})
    room = batch_tokens or running.model.run_settings.batch_tokens
    with eval_mode(running.module), Replaced(running) as replaced:
        for batch in batches(passes, room, alike_up_to(running.text_config)):
            noted = _Noting(wanted)
            replaced.step = noted
            whole = len(batch) * max(len(p.ids) for p in batch)  # so that it is one batch again
            (states,) = capture(running, batch, layers=wanted, batch_tokens=whole)
            rows = torch.tensor([row for row, p in enumerate(batch) for _ in p.keep])
            places = torch.tensor([at for p in batch for at in p.keep])
            replaced.step = None
            yield Batch(
                states, noted.streams, tuple(noted.blocks), rows, places, running.model.device
            )
            give_back()


class _Noting:
    """A step that computes what the block does, and keeps how it was called."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted = set(wanted)
        self.blocks: list[Own] = []
        self.streams: dict[int, Tensor] = {}

    def __call__(self, l: int, x: Tensor, own: Own) -> Tensor:
        self.blocks.append(own)
        if l in self.wanted:
            self.streams[l] = x.clone()
        return own(x)
