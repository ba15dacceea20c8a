"""Several circuits at a time, a thread each: one search is too small to keep all threads busy."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, TypeVar

import torch

from ..memory import free_memory
from .cancel import works_until
from .pairs import full_float32

if TYPE_CHECKING:
    from ..weights.model import Model

T = TypeVar("T")
MOST = 16
LARGE = 1 << 23  # numbers of a side from which its products occupy every thread on their own


def circuits_at_once(model: "Model", rows: int | None = None) -> int:
    """How many circuits of a model are searched side by side, over all tokens or `rows` of them."""
    taking_part = len(model.vocabulary) if rows is None else rows
    if model.device.type != "cpu" or taking_part * model.d_head > LARGE:
        return 1
    room = free_memory(model.device) // 4 // max(1, bytes_of_sides(model, taking_part))
    return max(1, min(torch.get_num_threads(), MOST, room))


def bytes_of_sides(model: "Model", rows: int) -> int:
    """What one search holds of P and Q: points, shortened ones, norms and order."""
    return 6 * rows * (model.d_head + 4) * torch.finfo(model.dtype).bits // 8


def in_order(jobs: Iterable[Callable[[], T]], at_once: int) -> Iterator[T]:
    """The results of jobs, in their order, `at_once` of them worked on side by side.

    The first one is done alone: what the others share is then made, and what is wrong with all is
    told by one. Jobs that have begun are told to stop where the results are not wanted any more
    (`wanted`), and waited for.
    """
    jobs = iter(jobs)
    for job in islice(jobs, 1 if at_once > 1 else None):
        yield job()
    if at_once == 1:
        return
    threads = torch.get_num_threads()
    given_up = Event()

    def begin() -> None:
        torch.set_num_threads(max(1, threads // at_once))
        works_until(given_up)

    pool = ThreadPoolExecutor(at_once, initializer=begin)
    try:
        with full_float32(), pool:
            running = deque(pool.submit(job) for job in islice(jobs, at_once + 1))
            try:
                while running:
                    result = running.popleft().result()
                    running.extend(pool.submit(job) for job in islice(jobs, 1))
                    yield result
            finally:
                given_up.set()
                for waiting in running:
                    waiting.cancel()
    finally:
        torch.set_num_threads(threads)
