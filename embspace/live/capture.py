"""States 0 … L of a live model, and what goes in and out of its sub-modules, at chosen positions.

Taken by our own hooks, so that state L is what the last block put out, before the final norm.
Passes of similar length run together, padded on the right with the mask that says so: a causal
model's real tokens never see the padding, an encoder's are kept from it by the mask, and no padded
row is ever taken.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import EmbspaceError, ModelError
from ..memory import give_back
from ..progress import Progress
from ..text.passages import Passage, Passages
from ..weights.model import Model
from ..weights.rotary import alike_up_to
from .hooks import eval_mode, read_batch
from .recorder import Part, Recorder
from .running import Running

BATCH_TOKENS = 4096
WINDOW = 64  # batches' worth of passes that are sorted by length together


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
    every = batches(passes, batch_tokens, alike_up_to(running.text_config))
    rows = _Rows()
    recorder = Recorder(running, wanted, rows.of, parts)
    with eval_mode(running.module), recorder:
        for batch in islice(every, share[0] + skip_batches * share[1], None, share[1]):
            rows.aim_at(batch)
            with torch.no_grad():
                read_batch(running, *padded(batch, pad_id(running)))
            yield _states(recorder, batch, dtype, where)
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


class _Rows:
    """The chosen positions of a batch, to be taken from what the model computes of it."""

    def aim_at(self, batch: Sequence[Passage]) -> None:
        """Take the positions of this batch from now on."""
        self.n_texts = len(batch)
        self.rows = torch.tensor([row for row, p in enumerate(batch) for _ in p.keep])
        self.places = torch.tensor([at for p in batch for at in p.keep])

    def of(self, x: Tensor) -> Float[Tensor, "n width"]:
        """Rows of (B, T, width), or of the same flattened."""
        if x.ndim == 2:
            x = x.reshape(self.n_texts, -1, x.shape[-1])
        return x[self.rows.to(x.device), self.places.to(x.device)].detach()


def _states(
    recorder: Recorder, batch: Sequence[Passage], dtype: torch.dtype, device: torch.device
) -> States:
    """What was recorded of a batch, checked and moved."""
    lines = torch.tensor([p.line for p in batch for _ in p.keep])
    positions = torch.tensor([at for p in batch for at in p.keep])
    tokens = torch.tensor([p.ids[at] for p in batch for at in p.keep])
    for l, x in sorted(recorder.states.items()):
        require_finite(x, f"state {l} of line {{}}", lines)
    for (layer, part), ends in sorted(recorder.ends.items()):
        for x in ends:
            require_finite(x, f"{part} of block {layer} of line {{}}", lines)
    layers = {l: x.to(device, dtype) for l, x in sorted(recorder.states.items())}
    parts: Any = {
        key: tuple(x.to(device, dtype) for x in ends)
        for key, ends in sorted(recorder.ends.items())
        if len(ends) == 2
    }
    return States(lines, positions, tokens, layers, parts, sum(len(p.ids) for p in batch))


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


def pad_id(running: Running) -> int:
    """An id to pad with: the config's own where it has one (some derive positions from it)."""
    config = running.model.config
    found = getattr(config, "pad_token_id", None)
    rows = running.base.get_input_embeddings().weight.shape[0]
    return int(found) if isinstance(found, int) and 0 <= found < rows else 0
