"""Feed-forward keys and values of one block or expert, whatever way a family stores them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from ..errors import ModelError

if TYPE_CHECKING:
    from .model import Model

DENSE_NAMES = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class FeedForward:
    """Keys and values of one feed-forward layer or expert (d_ff × d each).

    `keys` holds "up" alone, or "gate" and "up" where the layer is gated.
    """

    layer: int
    expert: int | str | None
    keys: dict[str, Float[Tensor, "d_ff d"]]
    values: Float[Tensor, "d_ff d"]
    key_biases: dict[str, Float[Tensor, "d_ff"] | None]
    value_bias: Float[Tensor, "d"] | None

    @classmethod
    def of(cls, model: "Model", layer: int, expert: int | str | None) -> "FeedForward":
        """Read one feed-forward layer; raises ModelError for an expert that does not exist."""
        block, family = model.layout.block(layer), model.family
        if expert not in expert_keys(model, layer):
            raise ModelError(
                f"layer {layer} has no expert {expert!r}; it has {expert_keys(model, layer)}."
            )
        if isinstance(expert, int) and _fused_experts(model, layer):
            return _from_fused_experts(cls, model, layer, expert)
        if expert is None:
            gate, up, down = family.gate, family.up, family.down
        else:
            inside = family.shared_expert if expert == "shared" else family.experts
            names = family.expert_names if expert != "shared" else DENSE_NAMES
            gate, up, down = (f"{(inside or '').format(e=expert)}.{name}" for name in names)
        keys, biases = _keys(model, block, gate, up, None if expert is not None else family.gate_up)
        values, value_bias = model.linear(block + down)
        return cls(layer, expert, keys, values.T, biases, value_bias)


def _keys(model: "Model", block: str, gate: str | None, up: str, gate_up: str | None):
    if gate_up:
        weight, bias = model.linear(block + gate_up)
        half = weight.shape[0] // 2
        parts = {"gate": weight[:half], "up": weight[half:]}
        return parts, {
            "gate": None if bias is None else bias[:half],
            "up": None if bias is None else bias[half:],
        }
    keys, biases = {}, {}
    for name, path in (("gate", gate), ("up", up)):
        if path:
            keys[name], biases[name] = model.linear(block + path)
    return keys, biases


def expert_keys(model: "Model", layer: int) -> list[int | str | None]:
    """[None] for a plain feed-forward layer; expert numbers, then "shared", for a mixture."""
    family, block = model.family, model.layout.block(layer)
    if not family.experts or f"{block}{family.down}.weight" in model.checkpoint:
        return [None]
    if _fused_experts(model, layer):
        n = model.checkpoint.shape(f"{block}mlp.experts.down_proj")[0]
    else:
        down = f"{block}{family.experts}.{family.expert_names[2]}.weight"
        n = next(e for e in range(1 << 16) if down.format(e=e) not in model.checkpoint)
    shared = f"{block}{family.shared_expert}.down_proj.weight" in model.checkpoint
    return [*range(n), *(["shared"] if shared else [])]


def _fused_experts(model: "Model", layer: int) -> bool:
    """Whether all experts lie in one (experts, …) tensor, as transformers 5 holds them in memory."""
    return f"{model.layout.block(layer)}mlp.experts.down_proj" in model.checkpoint


def _from_fused_experts(cls, model: "Model", layer: int, expert: int) -> FeedForward:
    block = f"{model.layout.block(layer)}mlp.experts."
    gate_up = model.checkpoint.tensor(f"{block}gate_up_proj")[expert].to(model.device, model.dtype)
    down = model.checkpoint.tensor(f"{block}down_proj")[expert].to(model.device, model.dtype)
    half = gate_up.shape[0] // 2
    keys = {"gate": gate_up[:half], "up": gate_up[half:]}
    return cls(layer, expert, keys, down.T, {"gate": None, "up": None}, None)
