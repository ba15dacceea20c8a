"""Blocks of a live model that compute something else for a while: skip, jump, or only some rows.

The base model goes on to do all that lies around its blocks (embedding, masks, positions), so that
what is true of a family there stays true.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .hooks import distinct_blocks, first_input, first_output, hooked, read_batch
from .recorder import Part, part_ends
from .running import Running

Step = Callable[[int, Tensor, "Own"], Tensor]  # (l, the stream that reaches block l, the block)


class Own:
    """A block itself, with all that its model hands it beside the stream."""

    def __init__(self, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any], n: int) -> None:
        self._forward, self._args, self._kwargs, self._n = forward, args, kwargs, n

    def __call__(
        self, x: Float[Tensor, "B T d"], rows: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T d"]:
        """The stream after the block; rows: x is of these sequences of the batch only."""
        args, kwargs = self._args, self._kwargs
        if rows is not None and len(rows) < self._n:
            args, kwargs = _of_rows(args, rows, self._n), _of_rows(kwargs, rows, self._n)
        return first_output(self._forward(x, *args, **kwargs))


class Replaced:
    """While it is open, block l computes `step(l, x, own)`; itself where step is None.

    Blocks are numbered in the order they run, so that layers which share a module are told apart.
    """

    def __init__(self, running: Running) -> None:
        self.running = running
        self.step: Step | None = None
        self._others: list[int | None] = []  # outputs of block l beside the stream
        self._next = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Replaced":
        try:
            self._others = self._others or _forms(self.running)
            hook = self.running.base.register_forward_pre_hook(self._start)
            self._stack.callback(hook.remove)
            for block in distinct_blocks(self.running):
                self._replace(block)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self.step = None
        self._stack.close()

    def _start(self, *_: Any) -> None:
        self._next = 0

    def _replace(self, block: Any) -> None:
        forward = block.forward
        own = vars(block).get("forward")  # one that was put there before us

        def replaced(*args: Any, **kwargs: Any) -> Any:
            l, self._next = self._next, self._next + 1
            if self.step is None:
                return forward(*args, **kwargs)
            x, args, kwargs = _stream(args, kwargs)
            out = self.step(l, x, Own(forward, args, kwargs, len(x)))
            others = self._others[l]
            return out if others is None else (out, *[None] * others)

        def restore() -> None:
            if own is None:
                del block.forward
            else:
                block.forward = own

        block.forward = replaced
        self._stack.callback(restore)


def _forms(running: Running) -> list[int | None]:
    """How many outputs each block returns beside the stream (None: a tensor), told by one token."""
    found: list[int | None] = []

    def note(block: Any, args: Any, output: Any) -> None:
        found.append(len(output) - 1 if isinstance(output, tuple | list) else None)

    one = torch.ones(1, 1, dtype=torch.long)
    hooks = (block.register_forward_hook(note) for block in distinct_blocks(running))
    with hooked(hooks), torch.no_grad():
        read_batch(running, torch.zeros_like(one), one)
    return found


@contextmanager
def part_replaced(
    running: Running, layer: int, part: Part, compute: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """While it lasts, a sub-module of a block puts out `compute` of its input, if it is there."""
    seen: list[Tensor] = []

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[:] = [first_input(args, kwargs)]

    def put_out(module: Any, args: Any, output: Any) -> Any:
        true = first_output(output)
        y = compute(seen[0]).reshape(true.shape).to(true.dtype)
        return (y, *output[1:]) if isinstance(output, tuple | list) else y

    handles = (
        module.register_forward_pre_hook(note, with_kwargs=True)
        if end == "in"
        else module.register_forward_hook(put_out)
        for module, end in part_ends(running, layer, part)
    )
    with hooked(handles):
        yield


def _stream(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, tuple[Any, ...], dict[str, Any]]:
    """The stream, and the other arguments."""
    if args:
        return args[0], args[1:], kwargs
    rest = dict(kwargs)
    return rest.pop("hidden_states"), (), rest


def _of_rows(given: Any, rows: Tensor, n: int) -> Any:
    """Every tensor with an entry a sequence, cut to some sequences; those that broadcast stay."""
    if isinstance(given, Tensor):
        return given[rows] if given.ndim and len(given) == n else given
    if isinstance(given, tuple | list):
        return tuple(_of_rows(one, rows, n) for one in given)
    if isinstance(given, dict):
        return {name: _of_rows(one, rows, n) for name, one in given.items()}
    return given
