"""States of a live model on padded texts, whole and with their gradients."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from .running import Running


def states_of(
    running: Running, ids: Int[Tensor, "B T"], mask: Int[Tensor, "B T"], layers: Iterable[int]
) -> dict[int, Float[Tensor, "B T d"]]:
    """State l of padded texts (mask 1 at real tokens) for some l of 0 … L, not normed."""
    with _watched(running, set(layers)) as kept:
        running.base(input_ids=ids, attention_mask=mask, **cacheless(running))
    return {l: state.reshape(*ids.shape, -1) for l, state in kept.items()}


def cacheless(running: Running) -> dict[str, Any]:
    """Arguments by which a live model keeps no keys and values for later."""
    return {"use_cache": False} if running.model.family.causal else {}


@contextmanager
def _watched(running: Running, layers: set[int]) -> Iterator[dict[int, Tensor]]:
    """What goes into the first block and comes out of each, by the order in which they run."""
    kept: dict[int, Tensor] = {}
    n_run = 0

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if n_run == 0 and 0 in layers:
            kept[0] = args[0] if args else kwargs["hidden_states"]

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        nonlocal n_run
        n_run += 1
        if n_run in layers:
            kept[n_run] = output[0] if isinstance(output, tuple | list) else output

    blocks = dict.fromkeys(running.block(l) for l in range(running.n_layers))
    handles = [
        handle
        for block in blocks
        for handle in (
            block.register_forward_pre_hook(before, with_kwargs=True),
            block.register_forward_hook(after),
        )
    ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()
