"""Which targets are among the first k of each source's row of W_VO, for all heads of a layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
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
    sources: Float[Tensor, "n d_h"], targets: Float[Tensor, "V d_h"], asked: Sequence[Asked]
) -> list[tuple[Hits, Hits]]:
    """What a head promotes and what it suppresses, relation by relation.

    A target counts where fewer than k scores of its row are above its own (below, of what is
    suppressed): k-th scores are found without sorting, so ties count for it.
    """
    ks = sorted({one.k for one in asked})
    every = torch.cat([one.targets for one in asked]).unique()
    highest, lowest = [], []
    for scores in _rows_of_scores(sources, targets):
        own = scores[:, every]
        top, bottom = kth(scores, ks), -kth(scores.neg_(), ks)
        highest.append(own[:, :, None] >= top[:, None])
        lowest.append(own[:, :, None] <= bottom[:, None])
    promoted, suppressed = torch.cat(highest).cpu(), torch.cat(lowest).cpu()
    every, found = every.cpu(), []
    for one in asked:
        columns = torch.searchsorted(every, one.targets.cpu())
        at = ks.index(one.k)
        rows = one.rows.cpu()
        found.append((_of(promoted, rows, columns, at), _of(suppressed, rows, columns, at)))
    return found


def _of(hits: Tensor, rows: Tensor, columns: Tensor, at: int) -> Hits:
    i, j = hits[:, :, at][rows][:, columns].nonzero(as_tuple=True)
    return Hits(i, j)


def _rows_of_scores(sources: Tensor, targets: Tensor) -> Iterator[Tensor]:
    """Scores of all targets, a few sources at a time."""
    step = max(1, BUFFER // (4 * len(targets)))
    across = targets.T
    for part in sources.split(step):
        yield part @ across


def kth(scores: Float[Tensor, "n V"], ks: Sequence[int]) -> Float[Tensor, "n ks"]:
    """The k-th largest score of each row, for each k; -inf beyond the end of a row.

    The first k lie in the k groups with the largest maxima, or in the rest that fills no group.
    """
    n, V = scores.shape
    k, wide = max(ks), V // GROUP
    if wide <= 2 * k:
        best = scores.topk(min(k, V), dim=1).values
    else:
        groups = scores[:, : wide * GROUP].view(n, GROUP, wide)
        first = groups.amax(1).topk(k, dim=1).indices
        inside = groups.gather(2, first[:, None].expand(n, GROUP, k)).reshape(n, -1)
        best = torch.cat([inside, scores[:, wide * GROUP :]], 1).topk(k, dim=1).values
    best = torch.nn.functional.pad(best, (0, k - best.shape[1]), value=-torch.inf)
    return best[:, [k - 1 for k in ks]]
