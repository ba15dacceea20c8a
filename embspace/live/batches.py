"""A live model run on texts with its blocks recorded: equal lengths together, no padding."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from ..errors import EmbspaceError
from .capture import require_finite
from .record import BlockRecord, Call, Tape
from .running import Running

if TYPE_CHECKING:
    from ..weights.model import Model

BATCH_TOKENS = 2048
FEW = 100  # texts, where nobody says how many
Note = Callable[[BlockRecord, list[int], Int[Tensor, "B T"]], None]


def recorded(running: Running, texts: Sequence[tuple[int, ...]], note: Note) -> Iterator[list[int]]:
    """Run texts of equal length together; `note` gets every block, the texts' numbers, their ids.

    Yields the numbers of the texts that were run, batch by batch. Raises StateError where a block
    puts out what is not finite.
    """
    for batch in batches(texts):
        ids = torch.tensor([texts[i] for i in batch], device=running.model.device)

        def on_block(record: BlockRecord, batch=batch, ids=ids) -> None:
            owners = torch.tensor(batch).repeat_interleave(ids.shape[1])
            states = record.state_out.reshape(len(owners), -1)
            require_finite(states, f"state {record.layer + 1} of text {{}}", owners)
            note(record, batch, ids)

        Tape(running, on_block).forward(ids)
        yield batch


def batches(texts: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Numbers of texts of the same length, at most `BATCH_TOKENS` ids together."""
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), i))
    for length, same in groupby(order, key=lambda i: len(texts[i])):
        found = list(same)
        size = max(1, BATCH_TOKENS // max(1, length))
        yield from (found[at : at + size] for at in range(0, len(found), size))


def needed(record: BlockRecord, role: str) -> Call:
    """The call of a part. Raises EmbspaceError where the block runs none of that kind."""
    call = record.call(role)
    if call is None:
        raise EmbspaceError(f"the live block {record.layer} runs no {role}: it cannot be recorded.")
    return call


def mixed_values(record: BlockRecord) -> Tensor:
    """Inputs of the output matrix (B, T, H · d_h): the values mixed by attention."""
    return needed(record, "o").x.reshape(*record.state_in.shape[:2], -1)


def activations(model: "Model", record: BlockRecord) -> Tensor | None:
    """What multiplies the values (B, T, d_ff); None in a mixture: its experts are not recorded."""
    if model.experts(record.layer) != [None]:
        return None
    return needed(record, "down").x.reshape(*record.state_in.shape[:2], -1)
