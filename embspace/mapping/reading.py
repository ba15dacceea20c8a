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
    def joined(cls, parts: "list[Reading]") -> "Reading":
        """Readings of successive rows as one."""
        return cls(*(torch.cat([getattr(p, name) for p in parts]) for name in vars(parts[0])))


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
    k = min(k, head.n_tokens)
    parts = []
    with torch.no_grad():
        for start in range(0, len(states), step):
            part = slice(start, start + step)
            wanted = None if answers is None else answers[part]
            parts.append(_read(head(states[part]), k, wanted, tracked))
    return Reading.joined(parts)


def _read(z: Tensor, k: int, answers: Tensor | None, tracked: tuple[int, ...]) -> Reading:
    scores, ids = _top(z, k)
    answers = ids[:, 0] if answers is None else answers.to(z.device)
    asked = torch.tensor(tracked, dtype=torch.long, device=z.device).expand(len(z), -1)
    rank = _rank(z, answers[:, None])[:, 0]
    tracked_rank, tracked_z = _rank(z, asked), z.gather(1, asked)
    largest = scores[:, :1]
    z = z - largest
    e = z.exp()
    total = e.sum(1, keepdim=True)
    # −Σ p log p, with log p = z − log Σ exp z
    entropy = total.log()[:, 0] - torch.linalg.vecdot(e, z.clamp_min_(-1e4)) / total[:, 0]
    return Reading(
        ids.cpu(),
        ((scores - largest).exp() / total).cpu(),
        entropy.clamp_min(0).cpu(),
        rank.cpu(),
        tracked_rank.cpu(),
        ((tracked_z - largest).exp() / total).cpu(),
    )


def _top(z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest and their ids, ties by id."""
    scores, ids = z.topk(k)
    ids, order = ids.sort(dim=1)
    scores, again = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores, ids.gather(1, again)


def _rank(z: Tensor, asked: Int[Tensor, "n m"]) -> Int[Tensor, "n m"]:
    """How many tokens come before each asked one, ties by id."""
    found = torch.empty_like(asked)
    for at in range(asked.shape[1]):
        own = z.gather(1, asked[:, at : at + 1])
        before = (z > own).sum(1)
        equal = z == own
        if int(equal.sum()) > len(z):  # ties are rare, so their order is looked at only then
            ids = torch.arange(z.shape[1], device=z.device)
            before = before + (equal & (ids < asked[:, at : at + 1])).sum(1)
        found[:, at] = before
    return found
