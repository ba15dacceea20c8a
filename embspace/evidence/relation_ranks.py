"""Which targets are among the first k of each source's row of W_VO, for all heads of a layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BUFFER = 1 << 26  # bytes of scores at a time
GROUP = 64  # scores of which only the largest is compared at first


@dataclass(frozen=True)
class Hits:
    """Of one head and relation: pairs (i, j) whose target j is among the first k of source i.

    i and j number the relation's pairs; where i = j a pair of the relation is found.
    """

    i: Int[Tensor, "m"]
    j: Int[Tensor, "m"]

    def found(self, n: int) -> list[bool]:
        """Whether each of n pairs is found."""
        found = torch.zeros(n, dtype=torch.bool)
        found[self.i[self.i == self.j]] = True
        return found.tolist()

    @property
    def n_found(self) -> int:
        """How many pairs are found."""
        return int((self.i == self.j).sum())


@dataclass(frozen=True)
class Asked:
    """One relation in numbers: rows of the sources, ids of the targets, and k."""

    rows: Int[Tensor, "n"]
    targets: Int[Tensor, "n"]
    k: int


def hits_of_head(
    sources: Float[Tensor, "n d_h"], targets: Float[Tensor, "d_h V"], asked: Sequence[Asked]
) -> list[tuple[Hits, Hits]]:
    """What a head promotes and what it suppresses, relation by relation.

    A target counts where fewer than k scores of its row are above its own (below, of what is
    suppressed): k-th scores are found without sorting, and ties count for it.
    """
    ks = sorted({one.k for one in asked})
    every = torch.cat([one.targets for one in asked]).unique().to(targets.device)
    high, low = [], []
    for scores in _rows_of_scores(sources, targets):
        own = scores[:, every, None]
        high.append(own >= kth(scores, ks, largest=True)[:, None])
        low.append(own <= kth(scores, ks, largest=False)[:, None])
    promoted, suppressed = torch.cat(high).cpu(), torch.cat(low).cpu()
    every, found = every.cpu(), []
    for one in asked:
        columns, at = torch.searchsorted(every, one.targets), ks.index(one.k)
        found.append(tuple(_of(x[:, :, at], one.rows, columns) for x in (promoted, suppressed)))
    return found


def _of(hits: Bool[Tensor, "n m"], rows: Tensor, columns: Tensor) -> Hits:
    return Hits(*hits[rows][:, columns].nonzero(as_tuple=True))


def _rows_of_scores(sources: Tensor, targets: Tensor) -> Iterator[Tensor]:
    """Scores of all targets, a few sources at a time; the same memory every time."""
    step = max(1, min(len(sources), BUFFER // (4 * targets.shape[1])))
    room = sources.new_empty(step, targets.shape[1])
    for part in sources.split(step):
        yield torch.mm(part, targets, out=room[: len(part)])


def kth(scores: Float[Tensor, "n V"], ks: Sequence[int], *, largest: bool) -> Float[Tensor, "n ks"]:
    """The k-th largest (or smallest) score of each row, for each k.

    The first k lie in the k groups with the largest maxima, or in the rest that fills no group.
    """
    n, V = scores.shape
    k, wide = min(max(ks), V), V // GROUP
    if wide > 2 * k:
        groups = scores[:, : wide * GROUP].view(n, GROUP, wide)
        ends = groups.amax(1) if largest else groups.amin(1)
        first = ends.topk(k, dim=1, largest=largest).indices
        inside = groups.gather(2, first[:, None].expand(n, GROUP, k)).reshape(n, -1)
        scores = torch.cat([inside, scores[:, wide * GROUP :]], 1)
    best = scores.topk(k, dim=1, largest=largest).values
    return best[:, [min(k, one) - 1 for one in ks]]
