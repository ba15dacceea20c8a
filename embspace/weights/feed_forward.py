"""Feed-forward keys and values of one block or expert, whatever way a family stores them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import whole
from ..errors import ModelError
from .family import DENSE_NAMES, STACK
from .weights import Weights

ACTIVATION_NAMES = (
    "hidden_activation",
    "hidden_act",
    "activation_function",
    "activation",
)


@dataclass(frozen=True)
class FeedForward:
    """Keys and values of one feed-forward layer or expert (d_ff × d each).

    `keys` holds "up" alone, or "gate" and "up" where the layer is gated: then the activations are
    act(x gate^T) · (x up^T). `expert` is None, a number, or "shared".
    """

    layer: int
    expert: int | str | None
    keys: dict[str, Float[Tensor, "d_ff d"]]
    values: Float[Tensor, "d_ff d"]
    key_biases: dict[str, Float[Tensor, "d_ff"] | None]
    value_bias: Float[Tensor, "d"] | None

    @classmethod
    def of(cls, model: Weights, layer: int, expert: int | str | None) -> "FeedForward":
        """Read one feed-forward layer; raises ModelError for an expert that does not exist."""
        block, family = model.layout.block(layer), model.family
        expert = chosen_expert(model, layer, expert)
        if isinstance(expert, int) and stacked_experts(model, layer):
            return _from_stack(cls, model, layer, expert)
        if expert is None:
            keys, biases = _keys(model, block, family.gate, family.up, family.gate_up)
            down = family.down
        else:
            gate, up, down = expert_paths(model, expert)
            keys, biases = _keys(model, block, gate, up, None)
        values, value_bias = model.linear(block + down)
        return cls(layer, expert, keys, values.T, biases, value_bias)

    def meets(self, x: Float[Tensor, "n d"]) -> dict[str, Float[Tensor, "n d_ff"]]:
        """x K^T + b for each set of keys: what the activation function takes."""
        met = {}
        for name, keys in self.keys.items():
            bias = self.key_biases[name]
            met[name] = x @ keys.T if bias is None else x @ keys.T + bias
        return met


def activation(model: Weights) -> Callable[[dict[str, Tensor]], Tensor]:
    """The function from what meets the keys to the activations of the values, by the config."""
    if model.family.activation == "gpt_oss":
        return _clamped_swiglu(model.config)
    act = activation_function(model.family.activation or activation_name(model.config))

    def activate(met: dict[str, Tensor]) -> Tensor:
        return act(met["gate"]) * met["up"] if "gate" in met else act(met["up"])

    return activate


def activation_name(config: Any) -> str:
    """The hidden activation as the config names it. Raises ModelError where it names none."""
    for name in ACTIVATION_NAMES:
        value = getattr(config, name, None)
        if isinstance(value, str):
            return value
    raise ModelError(f"the config names no activation (looked for {', '.join(ACTIVATION_NAMES)}).")


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """transformers' activation function of a name."""
    from transformers.activations import ACT2FN

    return ACT2FN[name]


def expert_keys(model: Weights, layer: int) -> list[int | str | None]:
    """[None] for a plain feed-forward layer; expert numbers, then "shared", for a mixture."""
    family, block = model.family, model.layout.block(layer)
    if not family.experts or f"{block}{family.down}.weight" in model.checkpoint:
        return [None]
    if stacked_experts(model, layer):
        n = model.checkpoint.shape(f"{block}{STACK}down_proj")[0]
    else:
        n = 0
        while f"{block}{expert_paths(model, n)[2]}.weight" in model.checkpoint:
            n += 1
    shared = bool(family.shared_expert) and (
        f"{block}{family.shared_expert}.down_proj.weight" in model.checkpoint
    )
    return [*range(n), *(["shared"] if shared else [])]


def chosen_expert(model: Weights, layer: int, expert: int | str | None) -> int | str | None:
    """An expert that a layer has. Raises ModelError, naming those there are, for any other."""
    if expert is not None and not isinstance(expert, str):
        expert = whole(expert, "expert", error=ModelError)
    known = expert_keys(model, layer)
    if expert in known:
        return expert
    if expert is None:
        raise ModelError(f"layer {layer} is a mixture: name one of its experts ({_named(known)}).")
    if known == [None]:
        raise ModelError(f"layer {layer} is no mixture: it has no expert {expert!r}, nor any.")
    raise ModelError(f"layer {layer} has no expert {expert!r}: it has {_named(known)}.")


def expert_paths(model: Weights, expert: int | str) -> tuple[str, str, str]:
    """Paths of gate, up and down of one expert, below the block."""
    family = model.family
    inside = family.shared_expert if expert == "shared" else family.experts
    names = DENSE_NAMES if expert == "shared" else family.expert_names
    gate, up, down = (f"{(inside or '').format(e=expert)}.{name}" for name in names)
    return gate, up, down


def stacked_experts(model: Weights, layer: int) -> bool:
    """Whether all experts of a block share (experts, …) tensors, as transformers 5 holds them."""
    return f"{model.layout.block(layer)}{STACK}down_proj" in model.checkpoint


def _keys(
    model: Weights, block: str, gate: str | None, up: str, gate_up: str | None
) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    if gate_up:
        weight, bias = model.linear(block + gate_up)
        return _halves(weight), {"gate": None, "up": None} if bias is None else _halves(bias)
    keys: dict[str, Tensor] = {}
    biases: dict[str, Tensor | None] = {}
    for name, path in (("gate", gate), ("up", up)):
        if path:
            keys[name], biases[name] = model.linear(block + path)
    return keys, biases


def _halves(rows: Tensor) -> dict[str, Any]:
    """Gate rows first, then as many up rows."""
    gate, up = rows.chunk(2)
    return {"gate": gate, "up": up}


def _from_stack(cls, model: Weights, layer: int, expert: int) -> FeedForward:
    """One expert of the stacked tensors: (out, in) halves, or gpt-oss' (in, out) alternating."""
    gate_up, down = (_of_stack(model, layer, f"{n}_proj", expert) for n in ("gate_up", "down"))
    bias, value_bias = (
        _of_stack(model, layer, f"{n}_proj_bias", expert) for n in ("gate_up", "down")
    )
    assert gate_up is not None and down is not None
    if model.family.expert_stack == "interleaved":
        keys = {"gate": gate_up[:, ::2].T, "up": gate_up[:, 1::2].T}
        biases = {"gate": None, "up": None}
        if bias is not None:
            biases = {"gate": bias[::2], "up": bias[1::2]}
        return cls(layer, expert, keys, down, biases, value_bias)
    return cls(layer, expert, _halves(gate_up), down.T, {"gate": None, "up": None}, value_bias)


def _of_stack(model: Weights, layer: int, name: str, expert: int) -> Tensor | None:
    path = f"{model.layout.block(layer)}{STACK}{name}"
    if path not in model.checkpoint:
        return None
    return model.checkpoint.tensor(path)[expert].to(model.device, model.dtype)


def _clamped_swiglu(config: Any) -> Callable[[dict[str, Tensor]], Tensor]:
    """gpt-oss: (up + 1) · gate · σ(α gate), both clamped."""
    alpha, limit = config.swiglu_alpha, config.swiglu_limit

    def activate(met: dict[str, Tensor]) -> Tensor:
        gate, up = met["gate"].clamp(max=limit), met["up"].clamp(-limit, limit)
        return (up + 1) * gate * torch.sigmoid(gate * alpha)

    return activate


def _named(keys: list[int | str | None]) -> str:
    numbers = [k for k in keys if isinstance(k, int)]
    return f"0 to {len(numbers) - 1}" + (" and 'shared'" if "shared" in keys else "")
