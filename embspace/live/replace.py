"""Blocks of a live model that compute something else for a while: skip, jump, or only some rows.

The base model goes on to do all that lies around its blocks (embedding, masks, positions), so that
what is true of a family there stays true.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
        return _first(self._forward(x, *args, **kwargs))


class Replaced:
    """While it is open, block l computes `step(l, x, own)`; itself where step is None.

    Blocks are numbered in the order they run, so that layers which share a module are told apart.
    """

    def __init__(self, running: Running) -> None:
        self.running = running
        self.step: Step | None = None
        self._tuples: list[bool] = []  # whether block l returns a tuple
        self._next = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Replaced":
        try:
            self._tuples = _forms(self.running)
            hook = self.running.base.register_forward_pre_hook(self._start)
            self._stack.callback(hook.remove)
            for block in dict.fromkeys(map(self.running.block, range(self.running.n_layers))):
                self._replace(block)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
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
            return (out,) if self._tuples[l] else out

        def restore() -> None:
            if own is None:
                del block.forward
            else:
                block.forward = own

        block.forward = replaced
        self._stack.callback(restore)


def _forms(running: Running) -> list[bool]:
    """Whether each block returns a tuple, told by one token."""
    found: list[bool] = []
    with ExitStack() as stack:
        for block in dict.fromkeys(map(running.block, range(running.n_layers))):
            hook = block.register_forward_hook(lambda m, a, out: found.append(type(out) is tuple))
            stack.callback(hook.remove)
        device = running.base.get_input_embeddings().weight.device
        ids = torch.zeros(1, 1, dtype=torch.long, device=device)
        with torch.no_grad():
            running.base(input_ids=ids, attention_mask=torch.ones_like(ids))
    return found


def _stream(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, tuple[Any, ...], dict[str, Any]]:
    """The stream, and the other arguments."""
    if args:
        return args[0], args[1:], kwargs
    rest = dict(kwargs)
    return rest.pop("hidden_states"), (), rest


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple | list) else output


def _of_rows(given: Any, rows: Tensor, n: int) -> Any:
    """Every tensor with an entry a sequence, cut to some sequences; those that broadcast stay."""
    if isinstance(given, Tensor):
        return given[rows] if given.ndim and len(given) == n else given
    if isinstance(given, tuple | list):
        return tuple(_of_rows(one, rows, n) for one in given)
    if isinstance(given, dict):
        return {name: _of_rows(one, rows, n) for name, one in given.items()}
    return given
