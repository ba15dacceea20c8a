"""Rows of states decoded all together: top tokens, entropy and ranks, and no logits kept.

A slice of rows at a time meets the head, so that memory depends neither on how many layers nor on
how many positions are decoded. The head's table is read once a slice, not once a layer.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .decoding import Head

SLICE = 1 << 23  # numbers of one vocabulary-sized tensor
PIECE = 1 << 18  # of those that stay in a processor's own cache while they are looked at again


@dataclass(frozen=True)
class Reading:
    """What is kept of the logits of n rows: see `Grid` for what each is."""

    ids: Int[Tensor, "n k"]
    p: Float[Tensor, "n k"]
    entropy: Float[Tensor, "n"]
    rank: Int[Tensor, "n"]
    tracked_rank: Int[Tensor, "n tracked"]
    tracked_p: Float[Tensor, "n tracked"]

    @classmethod
    def empty(cls, n: int, k: int, n_tracked: int, dtype: torch.dtype) -> "Reading":
        """Room for n rows."""
        whole = torch.long
        return cls(
            torch.empty(n, k, dtype=whole),
            torch.empty(n, k, dtype=dtype),
            torch.empty(n, dtype=dtype),
            torch.empty(n, dtype=whole),
            torch.empty(n, n_tracked, dtype=whole),
            torch.empty(n, n_tracked, dtype=dtype),
        )

    def put(self, rows: slice, part: "Reading") -> None:
        """Write some rows."""
        for name, tensor in vars(self).items():
            tensor[rows] = getattr(part, name)


def read(
    head: Head,
    states: Float[Tensor, "n d"],
    k: int,
    answers: Int[Tensor, "n"] | None,
    tracked: tuple[int, ...] = (),
) -> Reading:
    """Decode states before the final norm; answers: the token whose rank is wanted in each row.

    None: each row's own most likely token (rank 0). Softmax over the V tokens that have a name.
    """
    step = max(1, SLICE // head.n_tokens)
    piece = step if states.device.type != "cpu" else max(1, PIECE // head.n_tokens)
    k = min(k, head.n_tokens)
    # room is taken beforehand: small results kept between the large buffers of two slices would
    # leave gaps that no later buffer fits, and the process would grow after all
    found = Reading.empty(len(states), k, len(tracked), states.dtype)
    logits = head.room(min(step, len(states)), states)
    work = torch.empty_like(logits[:piece, : head.n_tokens])
    with torch.no_grad():
        for start in range(0, len(states), step):
            rows = states[start : start + step]
            z = head(rows, logits[: len(rows)])
            for at in range(0, len(z), piece):
                part = slice(start + at, start + min(at + piece, len(z)))
                wanted = None if answers is None else answers[part]
                some = z[at : at + piece]
                found.put(part, _read(some, k, wanted, tracked, work[: len(some)]))
    return found


def _read(
    z: Tensor, k: int, answers: Tensor | None, tracked: tuple[int, ...], room: Tensor
) -> Reading:
    """Of logits that are overwritten, like `room`."""
    scores, ids = _top(z, k)
    answers = ids[:, 0] if answers is None else answers.to(z.device)
    asked = torch.tensor(tracked, dtype=torch.long, device=z.device).expand(len(z), -1)
    rank = _rank(z, answers[:, None], room)[:, 0]
    tracked_rank, tracked_z = _rank(z, asked, room), z.gather(1, asked)
    largest = scores[:, :1]
    z.sub_(largest)
    e = torch.exp(z, out=room)
    total = e.sum(1, keepdim=True)
    # −Σ p log p, with log p = z − log Σ exp z
    entropy = total.log()[:, 0] - z.clamp_min_(-1e4).mul_(e).sum(1) / total[:, 0]
    p, tracked_p = (scores - largest).exp() / total, (tracked_z - largest).exp() / total
    return Reading(ids, p, entropy.clamp_min(0), rank, tracked_rank, tracked_p)


def _top(z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest and their ids, ties by id."""
    scores, ids = z.topk(k)
    ids, order = ids.sort(dim=1)
    scores, again = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores, ids.gather(1, again)


def _rank(z: Tensor, asked: Int[Tensor, "n m"], above: Tensor) -> Int[Tensor, "n m"]:
    """How many tokens come before each asked one, ties by id; `above` is overwritten.

    They are counted as floats: a sum of booleans would be copied to int64.
    """
    found = torch.empty_like(asked)
    for at in range(asked.shape[1]):
        own = z.gather(1, asked[:, at : at + 1])
        before = torch.gt(z, own, out=above).sum(1).long()
        if float(torch.eq(z, own, out=above).sum()) > len(z):  # ties: rare, and by id
            ids = torch.arange(z.shape[1], device=z.device)
            before = before + (above.bool() & (ids < asked[:, at : at + 1])).sum(1)
        found[:, at] = before
    return found
