"""Hooks on a live model: where the residual stream enters and leaves its blocks, and how it is run.

Everything that watches or changes a forward pass goes through here, so that what differs from
family to family (tensors or tuples, shared blocks, rotations that remember) is dealt with once.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import EmbspaceError, ModelError
from ..messages import first_line
from ..weights.rotary import forget_lengths
from .running import Running


def distinct_blocks(running: Running) -> list[nn.Module]:
    """The modules of all blocks, each once: layers may share one (ALBERT)."""
    return list(dict.fromkeys(running.block(l) for l in range(running.n_layers)))


def first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Float[Tensor, "B T d"]:
    """What a block or part reads, however the model hands it over."""
    return args[0] if args else kwargs.get("hidden_states", next(iter(kwargs.values())))


def first_output(output: Any) -> Float[Tensor, "B T d"]:
    """What a block or part puts out: the tensor, or the first of a tuple."""
    return output[0] if isinstance(output, tuple | list) else output


@contextmanager
def hooked(handles: Iterable[Any]) -> Iterator[None]:
    """Hooks that are there while it lasts; those already set go too if a later one fails."""
    with ExitStack() as stack:
        for handle in handles:
            stack.callback(handle.remove)
        yield


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Eval mode while it lasts; every module's own mode afterwards."""
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True


@contextmanager
def errors_of(running: Running) -> Iterator[None]:
    """A ModelError that names the live model, for whatever the model itself raises."""
    try:
        yield
    except EmbspaceError:
        raise
    except Exception as error:
        name = type(running.module).__name__
        raise ModelError(f"the live {name} cannot be run: {first_line(error)}.") from error


def without_cache(running: Running) -> dict[str, Any]:
    """Arguments by which a live model keeps no keys and values for later."""
    return {"use_cache": False} if running.model.family.causal else {}


def read_batch(running: Running, ids: Int[Tensor, "B T"], mask: Int[Tensor, "B T"]) -> None:
    """One forward pass over padded texts, without the head and without a cache.

    What it computes is for hooks to keep. Raises ModelError where the live model fails.
    """
    device = running.base.get_input_embeddings().weight.device
    with errors_of(running):
        forget_lengths(running.base)
        running.base(
            input_ids=ids.to(device), attention_mask=mask.to(device), **without_cache(running)
        )
