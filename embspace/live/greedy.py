"""Greedy steps of a live model with its key/value cache: the states behind each new token."""

from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import ModelError
from ..weights.json_files import read_json_file
from ..weights.rotary import alike_up_to, forget_lengths
from .capture import require_finite
from .hooks import errors_of, eval_mode
from .recorder import Recorder
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
    most = alike_up_to(running.text_config)
    cached = most is None or len(ids) + n <= most
    recorder = Recorder(running, range(running.n_layers + 1), _last)
    with recorder, torch.no_grad(), eval_mode(running.module):
        cache, new = None, list(ids)
        for at in range(n):
            cache = forward(running, torch.tensor([new]), cache)
            for l, state in recorder.states.items():
                require_finite(state, f"state {l} before new token {{}}", [at])
            token = choose(recorder.states[running.n_layers])
            yield recorder.states, token
            cache, new = (cache, [token]) if cached else (None, [*new, token])


def forward(running: Running, ids: Int[Tensor, "B T"], cache: Any) -> Any:
    """Read ids beside cached keys and values (None: from the start); the cache that then holds all.

    Raises ModelError where the model can't run or keeps none.
    """
    device = running.base.get_input_embeddings().weight.device
    if cache is None:
        forget_lengths(running.base)
    past = {} if cache is None else {cache_name(running.base): cache}
    with errors_of(running):
        out = running.base(input_ids=ids.to(device), use_cache=True, **past)
    cache = getattr(out, "cache", None) or getattr(out, "past_key_values", None)
    if cache is None:
        raise ModelError(f"the live {type(running.module).__name__} keeps no keys and values.")
    return cache


def cache_name(base: nn.Module) -> str:
    """What this version of transformers calls the cached keys and values."""
    return "cache" if "cache" in signature(base.forward).parameters else "past_key_values"


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
