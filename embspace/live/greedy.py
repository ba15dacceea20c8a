"""Greedy steps of a live model with its key/value cache: the states behind each new token."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import EmbspaceError, ModelError
from ..messages import first_line
from ..weights.json_files import read_json_file
from ..weights.rotary import alike_up_to, forget_lengths
from .capture import eval_mode, require_finite
from .running import Running

if TYPE_CHECKING:
    from ..weights.model import Model

States = dict[int, Float[Tensor, "1 d"]]


def steps(
    running: Running, ids: Sequence[int], n: int, choose: Callable[[Tensor], int]
) -> Iterator[tuple[States, int]]:
    """States 0 … L of the last position and the token chosen from state L, n times.

    The prompt is read once; then each chosen token alone, beside cached keys and values. Where a
    longer text turns all its tokens anew (see `alike_up_to`), the whole text is read at each step.
    choose: state L (1 × d) -> id of the next token. The module runs in eval mode and gets its own
    mode back. Raises ModelError where the model can't run, StateError where a state is not finite.
    """
    kept: States = {}
    with ExitStack() as stack, torch.no_grad(), eval_mode(running.module):
        for handle in _hooks(running, kept):
            stack.callback(handle.remove)
        most = alike_up_to(running.text_config)
        cached = most is None or len(ids) + n <= most
        cache, new = None, list(ids)
        for at in range(n):
            cache = forward(running, torch.tensor([new]), cache)
            for l in sorted(kept):
                require_finite(kept[l], f"state {l} before new token {{}}", [at])
            token = choose(kept[running.n_layers])
            yield dict(kept), token
            cache, new = (cache, [token]) if cached else (None, [*new, token])


def forward(running: Running, ids: Int[Tensor, "B T"], cache: Any) -> Any:
    """Read ids beside cached keys and values (None: from the start); the cache that then holds all.

    Raises ModelError where the model can't run or keeps none.
    """
    device = running.base.get_input_embeddings().weight.device
    if cache is None:
        forget_lengths(running.base)
    try:
        out = running.base(
            input_ids=ids.to(device),
            use_cache=True,
            **({} if cache is None else {_cache_name(running.base): cache}),
        )
    except EmbspaceError:
        raise
    except Exception as error:
        name = type(running.module).__name__
        raise ModelError(f"the live {name} cannot be run: {first_line(error)}.") from error
    cache = getattr(out, "cache", None) or getattr(out, "past_key_values", None)
    if cache is None:
        raise ModelError(f"the live {type(running.module).__name__} keeps no keys and values.")
    return cache


def _cache_name(base: nn.Module) -> str:
    """What this version of transformers calls the cached keys and values."""
    return "cache" if "cache" in signature(base.forward).parameters else "past_key_values"


def _hooks(running: Running, kept: States) -> Iterator[Any]:
    """State l of the last position is kept as `kept[l]`."""

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept[0] = _last(args[0] if args else kwargs["hidden_states"])

    def after(layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            kept[layer + 1] = _last(output[0] if isinstance(output, tuple | list) else output)

        return hook

    yield running.block(0).register_forward_pre_hook(before, with_kwargs=True)
    for layer in range(running.n_layers):
        yield running.block(layer).register_forward_hook(after(layer))


def _last(x: Tensor) -> Float[Tensor, "1 d"]:
    return x.reshape(-1, x.shape[-1])[-1:].detach()


def ends_of(model: "Model") -> set[int]:
    """Ids that end a text: of the config, the generation config and the tokenizer."""
    path = model.folder / "generation_config.json"
    generation = read_json_file(path) if path.is_file() else {}
    named = generation.get("eos_token_id") if isinstance(generation, dict) else None
    own = getattr(model.vocabulary.tokenizer, "eos_token_id", None)
    several = (getattr(model.config, "eos_token_id", None), named, own)
    every = [i for found in several for i in (found if isinstance(found, list) else [found])]
    return {i for i in every if isinstance(i, int)}
