"""One fit over several processes (`torchrun`): each sums its share of the text, all add them up."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from .sums import Sums


@dataclass(frozen=True)
class Group:
    """This process among those that work together."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that reports and writes."""
        return self.rank == 0

    def add_up(self, sums: Sums) -> None:
        """Give every process the sums of all."""
        if self.size == 1:
            return
        from torch import distributed

        sums.unshift()
        n = torch.tensor(float(sums.n), dtype=torch.float64, device=sums.device)
        for tensor in (n, *sums.tensors().values()):
            if tensor.numel():
                distributed.all_reduce(tensor)
        sums.n = round(float(n))
        self._share_rounding(sums)

    def _share_rounding(self, sums: Sums) -> None:
        """Judge in every process as the first one that rounded any products would."""
        from torch import distributed

        one = torch.tensor(self.rank if sums.rounded_in else self.size, device=sums.device)
        distributed.all_reduce(one, distributed.ReduceOp.MIN)
        if int(one) == self.size:
            return
        for source, block in sums.blocks.items():
            seen = sums.rounded_in.get(source, block[:, : sums.d]).clone().contiguous()
            distributed.broadcast(seen, int(one))
            sums.rounded_in[source] = seen

    def total(self, n: int) -> int:
        """The sum of a number over all processes."""
        if self.size == 1:
            return n
        from torch import distributed

        found = torch.tensor(n, device=_device())
        distributed.all_reduce(found)
        return int(found)


ALONE = Group()


def _device() -> str:
    """Where the processes exchange numbers."""
    from torch import distributed

    return "cuda" if distributed.get_backend() == "nccl" else "cpu"


@contextmanager
def process_group() -> Iterator[Group]:
    """The group that `torchrun` announces by RANK and WORLD_SIZE; alone without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size < 2:
        yield ALONE
        return
    from torch import distributed

    ours = not distributed.is_initialized()
    if ours:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size())
    finally:
        if ours:
            distributed.destroy_process_group()
