"""Memory and time: what there is on this machine, and what a piece of work will need of them."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .errors import ResourceError

CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Needs:
    """Memory in bytes and time in seconds; `seconds` is an order of magnitude.

    private: what must be free beside what this process holds already; mapped: pages of the
    checkpoint, which the system may drop again; peak: what the process will then hold.
    """

    private: int
    mapped: int
    seconds: float

    @property
    def peak(self) -> int:
        """Bytes this process will hold at most: now, plus both kinds."""
        return _held() + self.private + self.mapped

    def require(self, device: torch.device, *, way_out: str) -> None:
        """Raise ResourceError, naming the way out, unless the device has that much memory free."""
        free = free_memory(device)
        if self.private > free:
            raise ResourceError(
                f"this needs about {gigabytes(self.private)} of memory and {gigabytes(free)} are "
                f"free on {device}: {way_out}"
            )


def free_memory(device: torch.device | None = None) -> int:
    """Bytes that can still be taken: of the GPU, or of this machine and its container's limit."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    return min(int(psutil.virtual_memory().available), _container_room())


def give_back() -> None:
    """Hand freed memory back to the system, where glibc would keep it.

    Tensors of a batch's size come and go between small ones that stay: without this the heap of a
    long run grows to many times what is in use.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """glibc's function, or None on other systems."""
    import ctypes

    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


def gigabytes(n_bytes: float) -> str:
    """`1.2 GB`, `340 MB`."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{max(1, round(n_bytes / 1e6))} MB"


@cache
def flops_per_second() -> float:
    """Speed of a float32 product here and now, from a few hundredths of a second of them."""
    a, b = torch.ones(512, 512), torch.ones(512, 2048)
    torch.mm(a, b)
    start = time.perf_counter()
    for _ in range(3):
        torch.mm(a, b)
    return 3 * 2.0 * a.numel() * b.shape[1] / max(time.perf_counter() - start, 1e-6)


def _held() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _container_room() -> int:
    """Bytes left under a Linux container's memory limit; as good as endless where there is none."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        return (1 << 62) if limit == "max" else max(0, int(limit) - used)
    except (OSError, ValueError):
        return 1 << 62
