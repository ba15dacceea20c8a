"""What a live model computes inside its blocks, recorded by hooks while it runs."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ..errors import EmbspaceError
from ..weights.feed_forward import expert_keys, expert_paths
from ..weights.model import Model
from .capture import require_finite
from .hooks import errors_of, eval_mode, first_input, first_output, hooked, without_cache
from .running import Running

BATCH_TOKENS = 2048
FEW = 100  # texts, where nobody says how many
RECORDER = "embspace_recorder"
_CURRENT: ContextVar["Tape | None"] = ContextVar("embspace_tape", default=None)


@dataclass
class Call:
    """Inputs (positional, as given) and output of one call of a module."""

    inputs: tuple[Any, ...]
    output: Any

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.inputs[0]

    @property
    def y(self) -> Tensor:
        """The output, or its first part."""
        return first_output(self.output)


@dataclass
class Attended:
    """One attention call: weights (B, H, T, T), q (B, H, T, d_h), k and v (B, G or H, T, d_h).

    q, k, v are None where the family's attention does not hand them out.
    """

    weights: Tensor
    scale: float | None = None
    q: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None


@dataclass
class BlockRecord:
    """All that one block computed in one forward pass."""

    layer: int
    state_in: Tensor
    state_out: Tensor = field(default_factory=lambda: torch.empty(0))
    calls: dict[str, Call] = field(default_factory=dict)
    attended: Attended | None = None
    positions: Tensor | None = None  # (B or 1, T) of its tokens, where the block is given them

    def call(self, role: str) -> Call | None:
        """The call of a part: attn_norm, ff_norm, q, k, v, qkv, o, gate, up, gate_up, down …"""
        return self.calls.get(role)


class Tape:
    """Records a live model's blocks; each finished one goes to `on_block` and is let go.

    Blocks are numbered in the order they run, so layers that share a module are told apart.
    """

    def __init__(self, running: Running, on_block: Callable[[BlockRecord], None]) -> None:
        self.running, self.on_block = running, on_block
        self.record: BlockRecord | None = None
        self.embed_norm: Call | None = None
        self.last_state: Tensor | None = None
        self._n_run = 0

    def forward(self, ids: Tensor) -> Any:
        """Run the live model on token ids (B, T) and record it; returns its output.

        Raises ModelError where the live model fails on them.
        """
        self._n_run, self.record = 0, None
        with ExitStack() as stack:
            stack.enter_context(hooked(self._hooks()))
            stack.enter_context(eval_mode(self.running.module))
            stack.enter_context(_recording(self))
            stack.enter_context(torch.no_grad())
            stack.enter_context(errors_of(self.running))
            cache = without_cache(self.running)
            return self.running.module(input_ids=ids, output_attentions=True, **cache)

    def _hooks(self) -> Iterator[Any]:
        running = self.running
        seen: set[nn.Module] = set()
        for layer in range(running.n_layers):
            block = running.block(layer)
            if block in seen:
                continue
            seen.add(block)
            yield block.register_forward_pre_hook(self._start, with_kwargs=True)
            for role, module in _parts(running, layer):
                yield module.register_forward_hook(self._keep(role), with_kwargs=True)
                if role == "attention":
                    yield from self._splitters(module)
                    if running.adds_alibi_twice:
                        yield module.register_forward_pre_hook(_without_alibi, with_kwargs=True)
            for module in block.modules():
                yield module.register_forward_hook(self._notice_weights)
            yield block.register_forward_hook(self._finish)
        norm = running.base_part(running.model.family.embed_norm)
        if norm is not None:
            yield norm.register_forward_hook(self._keep_embed_norm)

    def _start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = first_input(args, kwargs).clone()
        self.record = BlockRecord(self._n_run, state, positions=kwargs.get("position_ids"))

    def _finish(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        record = self.record
        assert record is not None
        record.state_out = first_output(output)
        self.last_state = record.state_out
        self._n_run, self.record = self._n_run + 1, None
        self.on_block(record)

    def _keep(self, role: str):
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any):
            if self.record is not None:
                # a copy, for some blocks add to a part's output in place (Falcon)
                kept = output.clone() if isinstance(output, Tensor) else output
                self.record.calls[role] = Call(args or tuple(kwargs.values()), kept)

        return hook

    def _notice_weights(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        record = self.record
        if record is not None and record.attended is None:
            weights = _weights_in(output, record.state_in.shape[-2])
            record.attended = None if weights is None else Attended(weights)

    def _splitters(self, attention: nn.Module) -> Iterator["_Watched"]:
        """BLOOM's and Falcon's own methods that split a fused projection into q, k, v."""
        for name in ("_reshape", "_split_heads"):
            if self.running.model.family.qkv and hasattr(attention, name):
                yield _Watched(attention, name, self._keep_split)

    def _keep_split(self, output: Any) -> None:
        if self.record is not None:
            self.record.calls["split"] = Call((), output)

    def _keep_embed_norm(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.embed_norm = Call(args, output)


Note = Callable[[BlockRecord, list[int], Int[Tensor, "B T"]], None]


def recorded(running: Running, texts: Sequence[tuple[int, ...]], note: Note) -> Iterator[list[int]]:
    """Run texts of equal length together; `note` gets every block, the texts' numbers, their ids.

    Yields the numbers of the texts that were run, batch by batch. Raises StateError where a block
    puts out what is not finite.
    """
    for batch in _of_equal_length(texts):
        ids = torch.tensor([texts[i] for i in batch], device=running.model.device)

        def on_block(record: BlockRecord, batch=batch, ids=ids) -> None:
            owners = torch.tensor(batch).repeat_interleave(ids.shape[1])
            states = record.state_out.reshape(len(owners), -1)
            require_finite(states, f"state {record.layer + 1} of text {{}}", owners)
            note(record, batch, ids)

        Tape(running, on_block).forward(ids)
        yield batch


def _of_equal_length(texts: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Numbers of texts of the same length, at most `BATCH_TOKENS` ids together."""
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), i))
    for length, same in groupby(order, key=lambda i: len(texts[i])):
        found = list(same)
        size = max(1, BATCH_TOKENS // max(1, length))
        yield from (found[at : at + size] for at in range(0, len(found), size))


def needed(record: BlockRecord, role: str) -> Call:
    """The call of a part. Raises EmbspaceError where the block runs none of that kind."""
    call = record.call(role)
    if call is None:
        raise EmbspaceError(f"the live block {record.layer} runs no {role}: it cannot be recorded.")
    return call


def mixed_values(record: BlockRecord) -> Tensor:
    """Inputs of the output matrix (B, T, H · d_h): the values mixed by attention."""
    return needed(record, "o").x.reshape(*record.state_in.shape[:2], -1)


def activations(model: Model, record: BlockRecord) -> Tensor | None:
    """What multiplies the values (B, T, d_ff); None in a mixture: its experts are not recorded."""
    if model.experts(record.layer) != [None]:
        return None
    return needed(record, "down").x.reshape(*record.state_in.shape[:2], -1)


class _Watched:
    """A method of one module whose results are noted until `remove`."""

    def __init__(self, module: nn.Module, name: str, note: Callable[[Any], None]) -> None:
        self.module, self.name = module, name
        method = getattr(module, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = method(*args, **kwargs)
            note(output)
            return output

        setattr(module, name, watched)

    def remove(self) -> None:
        """Give the module its own method back."""
        delattr(self.module, self.name)


def _without_alibi(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    """Arguments of Falcon's attention without the bias that its mask holds already."""
    return args, kwargs | {"alibi": torch.zeros_like(kwargs["alibi"])}


def _parts(running: Running, layer: int) -> Iterator[tuple[str, nn.Module]]:
    """(role, module) of every part of a block that the live model has."""
    family = running.model.family
    names = {
        role: getattr(family, role)
        for role in ("attn_norm", "ff_norm", "q", "k", "v", "qkv", "o", "gate", "up", "gate_up")
    }
    names["down"] = family.down
    names["attention"] = family.o.rpartition(".")[0]
    if "shared" in expert_keys(running.model, layer):
        names["shared_down"] = expert_paths(running.model, "shared")[2]
        names["shared_gate"] = f"{family.shared_expert}_gate"
    if family.experts and running.part(layer, family.down) is None:
        names["experts"], names["mixture"] = "mlp.experts", "mlp"
    for role, path in names.items():
        module = running.part(layer, path)
        if module is not None:
            yield role, module


def _weights_in(output: Any, n: int) -> Tensor | None:
    """Attention weights (B, H, n, n) among a module's outputs, told by their shape."""
    for tensor in output if isinstance(output, tuple | list) else ():
        if isinstance(tensor, Tensor) and tensor.ndim == 4 and tensor.shape[-2:] == (n, n):
            return tensor
    return None


@contextmanager
def _recording(tape: Tape) -> Iterator[None]:
    """Let the recorder see queries, keys and values of families with the attention interface."""
    token = _CURRENT.set(tape)
    config = tape.running.text_config
    before = config._attn_implementation
    attention = tape.running.part(0, tape.running.model.family.o.rpartition(".")[0])
    if attention is not None and _eager_of(attention) is not None:
        _register()
        config._attn_implementation = RECORDER
    try:
        yield
    finally:
        config._attn_implementation = before
        _CURRENT.reset(token)


def _eager_of(module: nn.Module) -> Callable[..., Any] | None:
    """The eager attention function of the module's own family."""
    home = sys.modules[type(module).__module__]
    return getattr(home, "eager_attention_forward", None)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(RECORDER, _record)
    AttentionMaskInterface.register(RECORDER, eager_mask)


def _record(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *mask: Any, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """The family's own eager attention, its arguments and weights noted on the tape."""
    eager = _eager_of(module)
    assert eager is not None
    out, weights = eager(module, query, key, value, *mask, **kwargs)
    tape = _CURRENT.get()
    if tape is not None and tape.record is not None and weights is not None:
        scale = kwargs.get("scaling")
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        tape.record.attended = Attended(weights, scale, query, key, value)
    return out, weights
