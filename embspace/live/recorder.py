"""Record what a live model's blocks compute: states 0 … L, what goes in and out of their parts."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from ..weights.layout import spell
from ..weights.model import Model
from .hooks import distinct_blocks, first_input, first_output, hooked, read_batch
from .running import Running

Part = Literal["attn_norm", "attn", "ff_norm", "ff"]
PARTS: tuple[Part, ...] = ("attn_norm", "attn", "ff_norm", "ff")
Keep = Callable[[Tensor], Tensor]


class Recorder:
    """While it is open, each forward pass leaves `states[l]` and `ends[l, part]` of that pass.

    Args:
        running: The live model. Nothing is changed in it, gradients included.
        layers: Which states of 0 … L to keep; state L is the last block's output, before the
            final norm.
        keep: What to keep of each tensor, e.g. some rows. As a rule a tensor is (B, T, width).
        parts: Sub-modules whose input and output to keep, as `ends[block, part] = [input, output]`.

    Blocks are numbered in the order they run, so that layers which share a module are told apart.
    """

    def __init__(
        self,
        running: Running,
        layers: Iterable[int],
        keep: Keep = lambda x: x,
        parts: Iterable[Part] = (),
    ) -> None:
        self.running, self.keep = running, keep
        self.layers, self.parts = frozenset(layers), tuple(parts)
        self.states: dict[int, Tensor] = {}
        self.ends: dict[tuple[int, Part], list[Tensor]] = {}
        self._n_run = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Recorder":
        self._stack.enter_context(hooked(self._hooks()))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def _hooks(self) -> Iterator[Any]:
        running = self.running
        yield running.base.register_forward_pre_hook(self._begin)
        blocks = distinct_blocks(running)
        for block in blocks:
            yield block.register_forward_pre_hook(self._before, with_kwargs=True)
        seen: set[nn.Module] = set()
        for layer in range(running.n_layers) if self.parts else ():
            if running.block(layer) not in seen:
                seen.add(running.block(layer))
                yield from self._part_hooks(layer)
        for block in blocks:
            yield block.register_forward_hook(self._after)

    def _part_hooks(self, layer: int) -> Iterator[Any]:
        for part in self.parts:
            for module, end in part_ends(self.running, layer, part):
                if end == "in":
                    yield module.register_forward_pre_hook(self._reads(part), with_kwargs=True)
                else:
                    yield module.register_forward_hook(self._puts_out(part))

    def _begin(self, *_: Any) -> None:
        self._n_run, self.states, self.ends = 0, {}, {}

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._n_run == 0 and 0 in self.layers:
            self.states[0] = self.keep(first_input(args, kwargs))

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._n_run += 1
        if self._n_run in self.layers:
            self.states[self._n_run] = self.keep(first_output(output))

    def _reads(self, part: Part) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # a gate and an up projection, or q, k and v, read the same input: the first is enough
            if (self._n_run, part) not in self.ends:
                self.ends[self._n_run, part] = [self.keep(first_input(args, kwargs))]

        return hook

    def _puts_out(self, part: Part) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            found = self.ends.setdefault((self._n_run, part), [])
            if len(found) == 1:
                found.append(self.keep(first_output(output)))

        return hook


def states_of(
    running: Running, ids: Int[Tensor, "B T"], mask: Int[Tensor, "B T"], layers: Iterable[int]
) -> dict[int, Float[Tensor, "B T d"]]:
    """States of padded texts (mask 1 at real tokens) with their gradients: l -> state l.

    Raises ModelError where the live model fails on them.
    """
    with Recorder(running, layers, lambda x: x.reshape(*ids.shape, -1)) as recorder:
        read_batch(running, ids, mask)
    return recorder.states


def part_ends(running: Running, layer: int, part: Part) -> Iterator[tuple[nn.Module, str]]:
    """The modules whose input and whose output are those of a sub-module, if the block has it."""
    first, last = (running.part(layer, name) for name in _ends(running.model, layer, part))
    if not has_part(running.model, layer, part):  # an empty place of a norm
        return
    if first is not None and last is not None:
        yield first, "in"
        yield last, "out"


def has_part(model: Model, layer: int, part: Part) -> bool:
    """Whether a block has such a sub-module: told from the checkpoint, without a live model."""
    name = _ends(model, layer, part)[0]
    if part in ("attn", "ff") or name is None:
        return name is not None
    blocks = (model.layout.block(l) for l in (layer, 0, model.n_layers - 1))
    here, *elsewhere = (spell(name, block, model.checkpoint) is not None for block in blocks)
    return here or not any(elsewhere)  # in no block: norms that have no gain to store


def _ends(model: Model, layer: int, part: Part) -> tuple[str | None, str | None]:
    """Names below the block of the module that a sub-module begins with, and that it ends with."""
    family = model.family
    if part == "attn":
        return family.qkv or family.q, family.o
    if part == "ff":
        if model.experts(layer) != [None]:
            return "mlp", "mlp"
        return family.gate_up or family.gate or family.up, family.down
    before, after = (
        (family.attn_norm, family.attn_add)
        if part == "attn_norm"
        else (family.ff_norm, family.ff_add)
    )
    return before or after, before or after
