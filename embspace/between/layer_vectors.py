"""The parameter vectors of every layer, by group: what layers are compared by. [DAR] §5.1."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from jaxtyping import Float
from torch import Tensor

from ..errors import EmbspaceError
from ..notation import Norm
from ..weights.model import Model, fold, reading, writing

UNGATED = ("K", "V", "W_Q", "W_K", "W_V", "W_O")
GATED = ("K_gate", "K_up", "V", "W_Q", "W_K", "W_V", "W_O")
NAMES = ("K", "K_gate", "K_up", "V", "W_Q", "W_K", "W_V", "W_O")


@dataclass(frozen=True)
class Piece:
    """Some vectors of one layer (all of them; of a mixture, one expert's), read when asked for."""

    layer: int
    read: Callable[[], Float[Tensor, "n d"]]


def pieces(model: Model, group: str, norm: Norm = "raw") -> list[Piece]:
    """All vectors of a group, layer by layer: n vectors of width d a piece.

    K, K_gate, K_up: feed-forward keys; V: its values; W_Q, W_K, W_V: columns of all heads;
    W_O: rows of all heads. A mixture's layer is the vectors of all its experts together.
    """
    layers = range(model.n_layers)
    if group.startswith("W_"):
        return [Piece(at, partial(_attention, model, at, group, norm)) for at in layers]
    return [
        Piece(at, partial(_feed_forward, model, at, expert, group, norm))
        for at in layers
        for expert in model.experts(at)
    ]


def groups_of(model: Model) -> tuple[str, ...]:
    """The groups that a model has: keys come as gate and up where the layers are gated."""
    first = model.feed_forward(0, model.experts(0)[0])
    return GATED if "gate" in first.keys else UNGATED


def chosen_groups(
    a: Model, b: Model, groups: str | Iterable[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The groups to compare, and a sentence for what cannot be.

    K stands for both sets of keys where both models are gated. Raises EmbspaceError for an unknown
    group, and for one asked for that not both models have.
    """
    both = tuple(name for name in groups_of(a) if name in groups_of(b))
    gated = "K_gate" in groups_of(a)
    notes = () if "V" in both and len(both) >= len(UNGATED) else (_one_gated(a, b, gated),)
    if groups is None:
        return both, notes
    asked = [groups] if isinstance(groups, str) else list(groups)
    if not asked:
        raise EmbspaceError(f"no group was asked for: use {', '.join(NAMES)}.")
    wanted: dict[str, None] = {}
    for name in asked:
        if name not in NAMES:
            raise EmbspaceError(f"unknown group {str(name)[:80]!r}: use {', '.join(NAMES)}.")
        parts = ("K_gate", "K_up") if name == "K" and "K_gate" in both else (name,)
        if parts[0] not in both:
            raise EmbspaceError(_lacking(a, b, name, gated))
        wanted |= dict.fromkeys(parts)
    return tuple(name for name in both if name in wanted), ()


def _attention(model: Model, layer: int, group: str, norm: Norm) -> Tensor:
    matrix = getattr(model.attention(layer), group)
    if group == "W_O":
        return fold(matrix.reshape(-1, model.d), writing(model, layer, "attn", norm))
    columns = matrix.transpose(1, 2).reshape(-1, model.d)
    return fold(columns, reading(model, layer, "attn", norm))


def _feed_forward(
    model: Model, layer: int, expert: int | str | None, group: str, norm: Norm
) -> Tensor:
    weights = model.feed_forward(layer, expert)
    if group == "V":
        return fold(weights.values, writing(model, layer, "ff", norm))
    name = "gate" if group == "K_gate" else "up"
    if name not in weights.keys or (group == "K") == ("gate" in weights.keys):
        raise EmbspaceError(
            f"layer {layer} of {model.name} has other sets of keys than its layer 0: "
            f"{group} cannot be compared over layers; leave it out."
        )
    return fold(weights.keys[name], reading(model, layer, "ff", norm))


def _one_gated(a: Model, b: Model, gated: bool) -> str:
    one, other = (a, b) if gated else (b, a)
    return (
        f"Keys are left out: those of {one.name} come in two sets (gate and up), "
        f"those of {other.name} in one."
    )


def _lacking(a: Model, b: Model, name: str, gated: bool) -> str:
    if name == "K":
        return _one_gated(a, b, gated).replace("are left out", "cannot be compared")
    lacking = b if name in groups_of(a) else a
    return f"{lacking.name} has no {name}: its groups are {', '.join(groups_of(lacking))}."
