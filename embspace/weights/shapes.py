"""Whether a checkpoint's matrices have the shapes its config gives them: headers only."""

from typing import Any

from ..errors import ModelError
from .family import DENSE_NAMES, STACK, Family
from .layout import Layout, resolve, spell
from .tensors import Checkpoint

Shape = tuple[int, ...]


def fitting_layout(family: Family, config: Any, checkpoint: Checkpoint) -> Layout:
    """The layout of a checkpoint whose matrices have the shapes that its config gives them.

    Every block's matrices fit d, H, G, d_h and each other; the embedding fits d.
    Raises ModelError naming the first that is missing, packed, or of another shape.
    """
    layout = resolve(family, config, checkpoint)
    _Fits(layout, checkpoint).check()
    return layout


class _Fits:
    def __init__(self, layout: Layout, checkpoint: Checkpoint) -> None:
        self.layout, self.family, self.checkpoint = layout, layout.family, checkpoint

    def check(self) -> None:
        self._embedding()
        seen: set[str] = set()
        for layer in range(self.layout.n_layers):
            block = self.layout.block(layer)
            if block not in seen:
                seen.add(block)
                self._attention(layer, block)
                self._feed_forward(layer, block)

    def _embedding(self) -> None:
        layout, family = self.layout, self.family
        table = self._table(f"{layout.prefix}{family.embedding}.weight")
        head = spell(family.head, "", self.checkpoint)
        held = bool(head) and f"{head}.weight" in self.checkpoint
        widths = {table[1]} | ({self._table(f"{head}.weight")[1]} if held else set())
        for width in widths - {layout.d}:
            self._projection(width)

    def _table(self, path: str) -> Shape:
        shape = self.checkpoint.shape(path)
        if len(shape) != 2 or 0 in shape:
            raise ModelError(f"{path} is {shape}: a table with one row a token is expected.")
        self.checkpoint.refuse_packed(path)
        return shape

    def _projection(self, width: int) -> None:
        """A narrower table has a projection of the matching shape."""
        layout, family = self.layout, self.family
        for names, shape in (
            (family.project_in, (layout.d, width)),
            (family.project_out, (width, layout.d)),
        ):
            path = spell(names, layout.prefix, self.checkpoint)
            if path and self.checkpoint.shape(f"{path}.weight") == shape:
                return
        raise ModelError(
            f"the embedding in {self.checkpoint.folder} is {width} wide, the config says "
            f"{layout.d}, and no projection between the two is known."
        )

    def _attention(self, layer: int, block: str) -> None:
        sizes, family = self.layout, self.family
        n_q, n_kv = sizes.n_heads * sizes.d_head, sizes.n_kv_heads * sizes.d_head
        if family.qkv:
            self._expect(layer, block, family.qkv, (n_q + 2 * n_kv, sizes.d))
        else:
            for name, n in ((family.q, n_q), (family.k, n_kv), (family.v, n_kv)):
                self._expect(layer, block, name, (n, sizes.d))
        self._expect(layer, block, family.o, (sizes.d, n_q))
        self._alike(layer, block)

    def _alike(self, layer: int, block: str) -> None:
        """All blocks have a bias or a head norm, or none: transformers builds them alike."""
        family = self.family
        if family.generic:  # its certificate looks at every block
            return
        names = [f"{part}.bias" for part in (family.qkv, family.q, family.k, family.v, family.o)]
        norms = "|".join(filter(None, (family.q_norm, family.k_norm)))
        names += [f"{norm}.weight" for norm in norms.split("|")]
        for name in names:
            here, first = (f"{b}{name}" in self.checkpoint for b in (block, self.layout.block(0)))
            if here != first:
                has, lacks = (layer, 0) if here else (0, layer)
                raise ModelError(f"layer {has} has {name}, but layer {lacks} has not.")

    def _feed_forward(self, layer: int, block: str) -> None:
        family, checkpoint = self.family, self.checkpoint
        if not family.experts or f"{block}{family.down}.weight" in checkpoint:
            return self._dense(layer, block, family.gate, family.up, family.down)
        if f"{block}{STACK}down_proj" in checkpoint:
            self._stack(layer, block)
        else:
            self._numbered(layer, block, family.experts)
        shared = family.shared_expert
        if shared and f"{block}{shared}.down_proj.weight" in checkpoint:
            gate, up, down = (f"{shared}.{name}" for name in DENSE_NAMES)
            self._dense(layer, block, gate, up, down)

    def _dense(self, layer: int, block: str, gate: str | None, up: str, down: str) -> None:
        d = self.layout.d
        n = self._shape(layer, block, down)[-1]
        self._expect(layer, block, down, (d, n))
        if self.family.gate_up and down == self.family.down:
            return self._expect(layer, block, self.family.gate_up, (2 * n, d))
        for name in filter(None, (gate, up)):
            self._expect(layer, block, name, (n, d))

    def _numbered(self, layer: int, block: str, experts: str) -> None:
        n = 0
        while n == 0 or f"{block}{experts.format(e=n)}.{self.family.expert_names[2]}.weight" in (
            self.checkpoint
        ):
            gate, up, down = (f"{experts.format(e=n)}.{x}" for x in self.family.expert_names)
            self._dense(layer, block, gate, up, down)
            n += 1

    def _stack(self, layer: int, block: str) -> None:
        """Tensors of all experts, (out, in) each, or (in, out) where gate and up alternate."""
        d = self.layout.d
        names = [f"{block}{STACK}{name}" for name in ("down_proj", "gate_up_proj")]
        if names[1] not in self.checkpoint:
            raise ModelError(f"layer {layer}: {names[1]} is not there.")
        for name in names:
            self.checkpoint.refuse_packed(name)
        down, gate_up = (self.checkpoint.shape(name) for name in names)
        if self.family.expert_stack == "interleaved":
            down, gate_up = ((*s[:1], *s[:0:-1]) for s in (down, gate_up))
        n, _, width = down if len(down) == 3 else (0, 0, 0)
        if 0 in (n, width) or down != (n, d, width) or gate_up != (n, 2 * width, d):
            raise ModelError(
                f"layer {layer}: the experts' tensors {tuple(self.checkpoint.shape(names[0]))} and "
                f"{tuple(self.checkpoint.shape(names[1]))} fit neither each other nor width {d}."
            )

    def _shape(self, layer: int, block: str, name: str) -> Shape:
        """(out, in) of a matrix, whatever way round it is stored; its bias must match."""
        path = f"{block}{name}.weight"
        if path not in self.checkpoint:
            raise self._lacks(block, name)
        self.checkpoint.refuse_packed(path)
        shape = self.checkpoint.shape(path)
        if len(shape) != 2 or 0 in shape:
            raise ModelError(f"layer {layer}: {name} is {shape}, expected a matrix.")
        return shape[::-1] if self.family.transposed else shape

    def _lacks(self, block: str, name: str) -> ModelError:
        """That a matrix is not there; for a shape tried on an unknown architecture, what is."""
        folder, types = self.checkpoint.folder, " or ".join(self.family.types)
        if not self.family.generic:
            return ModelError(f"{folder} holds no {block}{name}.weight, which {types} models have.")
        weights = sorted(n for n in self.checkpoint.names if n.endswith("weight"))
        within = [n for n in weights if n.startswith(block)]
        beside = [n for n in within if n.startswith(block + name.partition(".")[0])]
        near = beside or within or [n for n in weights if ".0." in n]
        more = " …" if near[4:] else ""
        return ModelError(
            f"it holds {', '.join(near[:4])}{more}, where the nearest of the common shapes has "
            f"{block}{name}.weight."
        )

    def _expect(self, layer: int, block: str, name: str, expected: Shape) -> None:
        shape, bias = self._shape(layer, block, name), f"{block}{name}.bias"
        if shape != expected:
            raise ModelError(
                f"layer {layer}: {name} is {shape}, expected {expected} (out, in) "
                "from the config and the layer's other matrices."
            )
        if bias in self.checkpoint and self.checkpoint.shape(bias) != expected[:1]:
            raise ModelError(
                f"layer {layer}: {name}.bias is {self.checkpoint.shape(bias)}, "
                f"expected {expected[:1]}."
            )
