"""States 0 … L of a live model, and what goes in and out of its sub-modules, at chosen positions.

Taken by our own hooks, so that state L is what the last block put out, before the final norm.
Passes of similar length run together, padded on the right with the mask that says so: a causal
model's real tokens never see the padding, an encoder's are kept from it by the mask, and no padded
row is ever taken.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import EmbspaceError, ModelError
from ..memory import give_back
from ..messages import first_line
from ..progress import Progress
from ..text.passages import Passage, Passages
from ..weights.layout import spell
from ..weights.model import Model
from ..weights.rotary import alike_up_to, forget_lengths
from .running import Running

BATCH_TOKENS = 4096
WINDOW = 64  # batches' worth of passes that are sorted by length together
Part = Literal["attn_norm", "attn", "ff_norm", "ff"]
PARTS: tuple[Part, ...] = ("attn_norm", "attn", "ff_norm", "ff")


class StateError(EmbspaceError):
    """A state of a real token that is not finite: the run cannot go on."""


@dataclass(frozen=True)
class States:
    """What one batch of passes yields, one row for each position taken.

    layers: state l is `layers[l]`, l = 0 … L (only those asked for are there).
    parts: (block, part) -> (input, output) of a sub-module: "attn" and "ff" map what the part reads
    to what it puts out, before any post-norm; "attn_norm" and "ff_norm" are the norms before them
    (in post-norm blocks those after the addition). Where a block has no such norm it is missing.
    """

    lines: Int[Tensor, "n"]
    positions: Int[Tensor, "n"]
    tokens: Int[Tensor, "n"]
    layers: dict[int, Float[Tensor, "n d"]]
    parts: dict[tuple[int, Part], tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]] = field(
        default_factory=dict
    )
    n_tokens: int = 0  # read by the model in this batch, padding aside

    def __len__(self) -> int:
        return len(self.lines)

    def stacked(self) -> Float[Tensor, "layers n d"]:
        """All layers taken, in order."""
        return torch.stack([self.layers[l] for l in sorted(self.layers)])


def capture(
    running: Running,
    passes: Sequence[Passage],
    *,
    layers: Iterable[int] | None = None,
    parts: Iterable[Part] = (),
    batch_tokens: int | None = None,
    skip_batches: int = 0,
    share: tuple[int, int] = (0, 1),
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Iterator[States]:
    """Run a live model over passes and yield the states at their positions, batch by batch.

    layers: which of 0 … L (default all); parts: which sub-modules besides; batch_tokens: as the
    model's run settings say; skip_batches: that many
    first batches are not run (batches are always the same for the same passes); share (r, n): of
    every n batches only number r, so that n processes together run what one would. Rows come in
    `dtype` (float64 for a model read in float64, else float32) on `device` (the model's), in the
    order in which they were run: `lines` and `positions` say which is which. The module runs in
    eval mode and gets its own mode back.
    Raises StateError, naming layer and line, where a taken row holds NaN or infinity.
    """
    wanted = range(running.n_layers + 1) if layers is None else sorted(set(layers))
    for l in wanted:
        if not 0 <= l <= running.n_layers:
            raise ModelError(f"there is no state {l}: states are 0 to {running.n_layers}.")
    where = torch.device(device) if device is not None else running.model.device
    dtype = dtype or rows_dtype(running.model)
    batch_tokens = batch_tokens or running.model.run_settings.batch_tokens
    with eval_mode(running.module), _Recorder(running, set(wanted), tuple(parts)) as recorder:
        every = batches(passes, batch_tokens, alike_up_to(running.text_config))
        for batch in islice(every, share[0] + skip_batches * share[1], None, share[1]):
            recorder.run(batch)
            yield recorder.taken(batch, dtype, where)
            give_back()


def rows_dtype(model: Model) -> torch.dtype:
    """The dtype that states are handed on in."""
    return torch.float64 if model.dtype == torch.float64 else torch.float32


def read_text(
    running: Running,
    taken: Passages,
    *,
    progress: Progress | None = None,
    what: str = "score",
    **options: Any,
) -> Iterator[States]:
    """`capture` over the passes of a text, with progress in tokens; options as there."""
    n_read = 0
    for states in capture(running, taken.passages, **options):
        yield states
        n_read += states.n_tokens
        if progress:
            progress(what, n_read, taken.n_tokens)


def capture_all(running: Running, passes: Sequence[Passage], **options: Any) -> States:
    """All rows of `capture` in one, in the order of the passes and of the positions in them."""
    found = list(capture(running, passes, **options))
    if not found:
        raise ModelError("no pass was given.")
    lines, positions, tokens = (
        torch.cat([getattr(s, name) for s in found]) for name in ("lines", "positions", "tokens")
    )
    order = _order(passes, lines, positions)
    pick = order.to(next(iter(found[0].layers.values())).device) if found[0].layers else order
    layers = {l: torch.cat([s.layers[l] for s in found])[pick] for l in found[0].layers}
    parts = {
        key: tuple(torch.cat([s.parts[key][end] for s in found])[order] for end in (0, 1))
        for key in found[0].parts
    }
    n = sum(s.n_tokens for s in found)
    return States(lines[order], positions[order], tokens[order], layers, parts, n)  # type: ignore[arg-type]


def _order(passes: Sequence[Passage], lines: Tensor, positions: Tensor) -> Tensor:
    """Where each (line, position) of the passes lies among the rows."""
    found = {key: n for n, key in enumerate(zip(lines.tolist(), positions.tolist(), strict=True))}
    return torch.tensor([found[p.line, at] for p in passes for at in p.keep])


def batches(
    passes: Sequence[Passage], batch_tokens: int = BATCH_TOKENS, longest_mixed: int | None = None
) -> Iterator[list[Passage]]:
    """Passes of similar length together, at most `batch_tokens` ids a batch with the padding.

    longest_mixed: passes of more ids run with others of exactly their length only. The order of
    batches is shuffled (always the same way), so that what has been seen at any time is of all
    lengths.
    """
    average = max(1, sum(len(p.ids) for p in passes) // max(1, len(passes)))
    window = max(1, WINDOW * batch_tokens // average)
    for start in range(0, len(passes), window):
        found: list[list[Passage]] = []
        for one in sorted(passes[start : start + window], key=lambda p: -len(p.ids)):
            if not found or not _fits(one, found[-1], batch_tokens, longest_mixed):
                found.append([])
            found[-1].append(one)
        random.Random(start).shuffle(found)
        yield from found


def _fits(one: Passage, batch: list[Passage], batch_tokens: int, longest_mixed: int | None) -> bool:
    """Whether a pass may join a batch of passes that are no shorter."""
    longest = len(batch[0].ids)
    if longest_mixed is not None and longest > longest_mixed and len(one.ids) != longest:
        return False
    return longest * (len(batch) + 1) <= batch_tokens


def padded(batch: Sequence[Passage], pad: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """(ids padded on the right, mask with 1 at real tokens); the mask knows lengths, no ids."""
    longest = max(len(p.ids) for p in batch)
    ids = torch.full((len(batch), longest), pad, dtype=torch.long)
    mask = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, one in enumerate(batch):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        mask[row, : len(one.ids)] = 1
    return ids, mask


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Eval mode while it lasts; every module's own mode afterwards."""
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True


class _Recorder:
    """Hooks that keep the chosen rows of what a live model's blocks and parts compute.

    Blocks are numbered in the order they run, so that layers which share a module are told apart.
    """

    def __init__(self, running: Running, layers: set[int], parts: tuple[Part, ...]) -> None:
        self.running, self.layers, self.parts = running, layers, parts
        self.kept: dict[int, Tensor] = {}
        self.ends: dict[tuple[int, Part], list[Tensor]] = {}
        self._rows = self._places = torch.empty(0, dtype=torch.long)
        self._block = 0
        self._pad = _pad_id(running)
        self._stack = ExitStack()

    def __enter__(self) -> "_Recorder":
        try:
            for handle in self._hooks():
                self._stack.callback(handle.remove)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def run(self, batch: Sequence[Passage]) -> None:
        """One forward pass of the model without its head; what the hooks kept stays in `kept`."""
        ids, mask = padded(batch, self._pad)
        self._rows = torch.tensor([row for row, p in enumerate(batch) for _ in p.keep])
        self._places = torch.tensor([at for p in batch for at in p.keep])
        self._block, self.kept, self.ends = 0, {}, {}
        device = self.running.base.get_input_embeddings().weight.device
        cache = {"use_cache": False} if self.running.model.family.causal else {}
        try:
            with torch.no_grad():
                forget_lengths(self.running.base)
                self.running.base(input_ids=ids.to(device), attention_mask=mask.to(device), **cache)
        except EmbspaceError:
            raise
        except Exception as error:
            name = type(self.running.module).__name__
            raise ModelError(f"the live {name} cannot be run: {first_line(error)}.") from error

    def taken(self, batch: Sequence[Passage], dtype: torch.dtype, device: torch.device) -> States:
        """The rows kept of the last batch, checked and moved."""
        lines = torch.tensor([p.line for p in batch for _ in p.keep])
        tokens = torch.tensor([p.ids[at] for p in batch for at in p.keep])
        for l in sorted(self.kept):
            require_finite(self.kept[l], f"state {l} of line {{}}", lines)
        for (layer, part), ends in sorted(self.ends.items()):
            for x in ends:
                require_finite(x, f"{part} of block {layer} of line {{}}", lines)
        layers = {l: x.to(device, dtype) for l, x in sorted(self.kept.items())}
        parts: Any = {
            key: tuple(x.to(device, dtype) for x in ends)
            for key, ends in sorted(self.ends.items())
            if len(ends) == 2
        }
        n_tokens = sum(len(p.ids) for p in batch)
        return States(lines, self._places, tokens, layers, parts, n_tokens)

    def _hooks(self) -> Iterator[Any]:
        running = self.running
        seen: set[nn.Module] = set()
        for layer in range(running.n_layers):
            block = running.block(layer)
            if block in seen:
                continue
            seen.add(block)
            yield block.register_forward_pre_hook(self._start, with_kwargs=True)
            yield from self._part_hooks(layer)
            yield block.register_forward_hook(self._finish)

    def _part_hooks(self, layer: int) -> Iterator[Any]:
        for part in self.parts:
            for module, end in part_ends(self.running, layer, part):
                if end == "in":
                    yield module.register_forward_pre_hook(self._keep_in(part), with_kwargs=True)
                else:
                    yield module.register_forward_hook(self._keep_out(part))

    def _start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._block == 0 and 0 in self.layers:
            self.kept[0] = self._rows_of(args[0] if args else kwargs["hidden_states"])

    def _finish(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._block += 1
        if self._block in self.layers:
            self.kept[self._block] = self._rows_of(_tensor(output))

    def _keep_in(self, part: Part) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x = args[0] if args else next(iter(kwargs.values()))
            self.ends.setdefault((self._block, part), [self._rows_of(x)])

        return hook

    def _keep_out(self, part: Part) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            found = self.ends.setdefault((self._block, part), [])
            if len(found) == 1:
                found.append(self._rows_of(_tensor(output)))

        return hook

    def _rows_of(self, x: Tensor) -> Tensor:
        """The taken positions of (B, T, width), or of the same flattened."""
        n_texts = int(self._rows[-1]) + 1
        if x.ndim == 2:
            x = x.reshape(n_texts, -1, x.shape[-1])
        return x[self._rows.to(x.device), self._places.to(x.device)].detach()


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


def _tensor(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple | list) else output


def require_finite(x: Float[Tensor, "n ..."], what: str, owners: Sequence[int] | Tensor) -> None:
    """Raise StateError for a row that holds NaN or infinity.

    what: says what it is, with {} for the number of its owner (a line, a prompt), from 1.
    """
    if bool(torch.isfinite(x).all()):
        return
    bad = ~torch.isfinite(x).flatten(1).all(dim=1)
    owner = int(owners[int(bad.nonzero()[0])]) + 1
    finite = x[torch.isfinite(x)]
    largest = float(finite.abs().max()) if finite.numel() else float("nan")
    raise StateError(
        f"{what.format(owner)} holds NaN or infinity (largest finite value {largest:.3g}, computed "
        f"in {str(x.dtype).removeprefix('torch.')}): nothing was kept; {_way_out(x.dtype)}."
    )


def _way_out(dtype: torch.dtype) -> str:
    if dtype == torch.float64:
        return "leave that text out"
    wider = "float64" if dtype == torch.float32 else "float32"
    return f"run in {wider} (run_dtype={wider}), or leave that text out"


def _pad_id(running: Running) -> int:
    """An id to pad with: the config's own where it has one (some derive positions from it)."""
    config = running.model.config
    found = getattr(config, "pad_token_id", None)
    rows = running.base.get_input_embeddings().weight.shape[0]
    return int(found) if isinstance(found, int) and 0 <= found < rows else 0
