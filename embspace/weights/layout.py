"""A family's names resolved against one checkpoint and its config: sizes, paths, scales."""

from dataclasses import dataclass, replace
from typing import Any

from ..checking import index
from ..errors import ModelError
from ..messages import first_line
from .encoders import HEADS
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
        layer = index(layer, self.n_layers, "layer", error=ModelError)
        group = int(layer / (self.n_layers / self.n_groups))  # rounded as transformers does
        return self.prefix + self.family.block.format(l=layer, group=group) + "."

    def beyond(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint holds a block after the last one that the config knows of."""
        after = self.family.block.format(l=self.n_layers, group=self.n_groups)
        return any(name.startswith(f"{self.prefix}{after}.") for name in checkpoint.names)

    def shares_weights_with(self, layer: int) -> list[int]:
        """The layers that use the same tensors as this one (itself included)."""
        return [m for m in range(self.n_layers) if self.block(m) == self.block(layer)]


def resolve(family: Family, config: Any, checkpoint: Checkpoint) -> Layout:
    """Sizes from the config, prefix and spellings from the names that the checkpoint holds.

    Raises ModelError naming what was looked for and not found.
    """
    family = replace(family, **family.adapt(config))
    if family.generic and family.transform:
        family = _with_held_head(family, checkpoint)
    prefix = _prefix(family, checkpoint)
    n_layers = _size(config, "num_hidden_layers")
    n_heads, n_kv_heads, d_head = head_sizes(config)
    if getattr(config, "inner_group_num", 1) != 1:
        raise ModelError("ALBERT with inner_group_num above 1 is not supported.")
    return Layout(
        family=family,
        prefix=prefix,
        d=_size(config, "hidden_size"),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        n_groups=_size(config, "num_hidden_groups", n_layers),
    )


def _with_held_head(family: Family, checkpoint: Checkpoint) -> Family:
    """An unknown encoder with the prediction head, of all known encoders', that its file holds."""
    for transform, head in HEADS.items():
        if f"{transform.dense}.weight" in checkpoint:
            return replace(family, transform=transform, **head)
    return family


def text_part(config: Any) -> Any:
    """The text model's config inside a config that may hold more (vision, audio)."""
    try:
        text = config.get_text_config(decoder=True)
    except Exception as error:
        raise ModelError(f"the config's text part is unusable ({first_line(error)}).") from error
    if not hasattr(text, "to_dict") or not hasattr(text, "model_type"):
        raise ModelError(f"the config's text_config is no config (got {str(text)[:80]!r}).")
    return text


def head_sizes(config: Any) -> tuple[int, int, int]:
    """(H, G, d_h) as the config states them; d_h falls back to d / H only where it is not set."""
    n_heads = _size(config, "num_attention_heads")
    n_kv_heads = _size(config, "num_key_value_heads", n_heads)
    if getattr(config, "new_decoder_architecture", False):
        n_kv_heads = _size(config, "num_kv_heads")
    elif getattr(config, "multi_query", False):
        n_kv_heads = 1
    d_head = _size(config, "head_dim", _size(config, "hidden_size") // n_heads)
    if d_head < 1:
        raise ModelError(f"{n_heads} heads do not fit into the config's hidden_size.")
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
            _refuse_twice(prefix, family, checkpoint)
            return prefix
    ending = f".{family.embedding}.weight"
    found = [n.removesuffix(ending[1:]) for n in checkpoint.names if n.endswith(ending)]
    if family.generic and len(found) == 1:
        return found[0]
    looked = ", ".join(f"{prefix}{family.embedding}.weight" for prefix in family.base)
    raise ModelError(f"no token embedding found in {checkpoint.folder}: looked for {looked}.")


def _refuse_twice(prefix: str, family: Family, checkpoint: Checkpoint) -> None:
    """Raise ModelError for a weight held under two prefixes with different values."""
    own = [name.removeprefix(prefix) for name in checkpoint.names if name.startswith(prefix)]
    for other in family.base:
        for rest in own if other != prefix else ():
            one, twin = prefix + rest, other + rest
            if twin in checkpoint and not checkpoint.same(one, twin):
                raise ModelError(
                    f"{checkpoint.folder} holds both {one} and {twin}, which differ: which of the "
                    "two is meant cannot be told."
                )


def _size(config: Any, name: str, default: int | None = None) -> int:
    """A size as the config states it; the default where it states none."""
    try:
        value = getattr(config, name, None)
    except Exception as error:  # a size of each layer's own
        raise ModelError(f"the config gives no one {name}: {first_line(error)}.") from error
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or (value < 1 and value != default):
        raise ModelError(f"the config gives no usable {name} (got {str(value)[:40]}).")
    return value
