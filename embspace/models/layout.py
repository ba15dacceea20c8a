"""A family's names resolved against one checkpoint and its config: sizes, paths, scales."""

from dataclasses import dataclass, replace
from typing import Any

from ..errors import ModelError
from .family import Family
from .tensors import Checkpoint


@dataclass(frozen=True)
class Layout:
    """Sizes and full tensor names of one checkpoint (axis names: embspace.notation).

    `path` gives the module path of a part of a block; `spell` picks the spelling in use.
    """

    family: Family
    prefix: str
    d: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    n_groups: int  # groups of layers that share weights (ALBERT); n_layers elsewhere

    def block(self, layer: int) -> str:
        """Prefix of a block's tensors, e.g. `transformer.h.3.`."""
        if not 0 <= layer < self.n_layers:
            raise ModelError(
                f"layer {layer} does not exist: this model has 0 to {self.n_layers - 1}."
            )
        group = layer * self.n_groups // self.n_layers
        return self.prefix + self.family.block.format(l=layer, group=group) + "."

    def shares_weights_with(self, layer: int) -> list[int]:
        """The layers that use the same tensors as this one (itself included)."""
        return [m for m in range(self.n_layers) if self.block(m) == self.block(layer)]


def resolve(family: Family, config: Any, checkpoint: Checkpoint) -> Layout:
    """The Layout of a checkpoint; raises ModelError naming what was looked for and not found."""
    family = replace(family, **family.adapt(config))
    prefix = _prefix(family, checkpoint)
    n_layers = _size(config, "num_hidden_layers")
    n_heads, n_kv_heads, d_head = head_sizes(config)
    layout = Layout(
        family=family,
        prefix=prefix,
        d=_size(config, "hidden_size"),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        n_groups=getattr(config, "num_hidden_groups", n_layers),
    )
    if getattr(config, "inner_group_num", 1) != 1:
        raise ModelError("ALBERT with inner_group_num above 1 is not supported.")
    _check_first_block(layout, checkpoint)
    return layout


def text_part(config: Any) -> Any:
    """The text model's config inside a config that may hold more (vision, audio)."""
    return config.get_text_config(decoder=True)


def head_sizes(config: Any) -> tuple[int, int, int]:
    """(H, G, d_h) as the config states them; d_h falls back to d / H only where it is not set."""
    n_heads = _size(config, "num_attention_heads")
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    if getattr(config, "new_decoder_architecture", False):
        n_kv_heads = config.num_kv_heads
    elif getattr(config, "multi_query", False):
        n_kv_heads = 1
    d_head = getattr(config, "head_dim", None) or _size(config, "hidden_size") // n_heads
    if n_heads % n_kv_heads:
        raise ModelError(f"{n_heads} query heads do not divide over {n_kv_heads} key/value heads.")
    return n_heads, n_kv_heads, d_head


def spell(names: str | None, prefix: str, checkpoint: Checkpoint) -> str | None:
    """The full path of the first spelling (`a|b`) that the checkpoint holds, else None."""
    for name in (names or "").split("|"):
        if name and any(f"{prefix}{name}{end}" in checkpoint for end in (".weight", ".bias", "")):
            return prefix + name
    return None


def _prefix(family: Family, checkpoint: Checkpoint) -> str:
    for prefix in family.base:
        if f"{prefix}{family.embedding}.weight" in checkpoint:
            return prefix
    ending = f".{family.embedding}.weight"
    found = [n.removesuffix(ending[1:]) for n in checkpoint.names if n.endswith(ending)]
    if family.generic and len(found) == 1:
        return found[0]
    looked = ", ".join(f"{prefix}{family.embedding}.weight" for prefix in family.base)
    raise ModelError(f"no token embedding found in {checkpoint.folder}: looked for {looked}.")


def _check_first_block(layout: Layout, checkpoint: Checkpoint) -> None:
    """The matrices of the first and last block are there, under the names the family gives."""
    family = layout.family
    attention = [family.qkv] if family.qkv else [family.q, family.k, family.v]
    keys = [family.gate_up] if family.gate_up else [family.gate, family.up]
    names = [*attention, family.o] if family.experts else [*attention, family.o, *keys, family.down]
    for layer in (0, layout.n_layers - 1):
        for path in (f"{layout.block(layer)}{name}.weight" for name in names if name):
            if path not in checkpoint:
                kind = "/".join(family.types) or "model of this shape"
                raise ModelError(
                    f"{checkpoint.folder} holds no {path}, which a {kind} should have."
                )


def _size(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"the config gives no usable {name} (got {value!r}).")
    return value
