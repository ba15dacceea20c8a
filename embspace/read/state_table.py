"""Tables of states: what live passes make of each token, kept in the user's cache as they grow.

A table of `token` or `mean` states is a sparse file of V × d float32 a layer beside a file of V
flags that say which rows are there. Rows are written before their flags, so that a run that was
killed goes on where it stopped, and rows of other tokens can be added later.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..cache import alone, cache_folder, told
from ..checking import one_of
from ..errors import EmbspaceError, TextError
from ..live.capture import capture
from ..live.running import run
from ..memory import gigabytes
from ..text.passages import Encoder, Passage
from ..text.text import Text
from ..weights.settings import model_key

if TYPE_CHECKING:
    from ..weights.model import Model

VERSION = 1
STEP = 2048  # tokens between two notes of what is done
NEUTRAL = "the"  # the word that a token is read after, so that it is not the first of its text
KINDS = ("token", "mean")
Progress = Callable[[str, int, int], None]


def state_table(
    model: "Model", kind: str, layer: int, ids: Int[Tensor, "n"] | None, text: Any = None
) -> Float[Tensor, "V d"]:
    """State `layer` of each token, memory-mapped; rows not made yet are made first.

    Rows of tokens that nobody asked for, or that no text holds, are zero.
    """
    make_state_tables(model, kind, [layer], ids, text)
    return _Files(model, kind, layer, _text_key(model, kind, text)).table()


def make_state_tables(
    model: "Model",
    kind: str,
    layers: Iterable[int],
    ids: Int[Tensor, "n"] | None = None,
    text: Any = None,
    *,
    progress: Progress = lambda what, done, total: None,
) -> None:
    """Make the rows of `token` or `mean` tables that are not there yet, all layers in one go.

    token: one short pass a token, after the start token and one neutral word. mean: the text once.

    Args:
        kind: "token" or "mean".
        layers: of the states, 0 … L.
        ids: tokens wanted; None for all.
        text: for `mean`: a Text, a file or sentences.
        progress: is told what is done, of how much.

    Raises:
        EmbspaceError: the cache cannot be written, or another run is writing the same tables.
        TextError: the model reads no text, or the text holds none of the tokens.
    """
    one_of(kind, KINDS, "kind of table")
    key = _text_key(model, kind, text)
    files = [_Files(model, kind, layer, key) for layer in sorted(set(layers))]
    missing = torch.stack([f.missing(ids) for f in files]).any(0).nonzero()[:, 0]
    if not len(missing):
        return
    with alone(files[0].folder):
        fill = _token_states if kind == "token" else _mean_states
        total = len(missing)
        done = 0
        for rows, states in fill(model, [f.layer for f in files], missing, text):
            for file in files:
                file.write(rows, states[file.layer])
            done += len(rows)
            progress(f"{kind} states", done, total)


def size_of_tables(model: "Model", kind: str, layers: Iterable[int], ids: Any, text: Any) -> str:
    """What `make_state_tables` would write, in words; empty where all is there."""
    key = _text_key(model, kind, text)
    files = [_Files(model, kind, layer, key) for layer in set(layers)]
    each = [int(f.missing(ids).sum()) for f in files]
    if not sum(each):
        return ""
    size = gigabytes(sum(each) * model.d * 4)
    return f"{max(each):,} {kind} states of {len(files)} layers, {size} on disk"


class _Files:
    """The two files of one layer's table."""

    def __init__(self, model: "Model", kind: str, layer: int, text_key: str) -> None:
        if not 0 <= layer <= model.n_layers:
            raise EmbspaceError(f"there is no state {layer}: states are 0 to {model.n_layers}.")
        self.layer, self.shape = layer, (len(model.vocabulary), model.d)
        name = f"{kind}{VERSION}-{model_key(model)}-{text_key}".rstrip("-")
        self.folder = cache_folder("sides") / name
        self.rows, self.made = (self.folder / f"{layer}.{end}" for end in ("f32", "made"))

    def missing(self, ids: Tensor | None) -> Tensor:
        """Which of the wanted rows are not there (V,)."""
        wanted = torch.zeros(self.shape[0], dtype=torch.bool)
        wanted[slice(None) if ids is None else ids.cpu()] = True
        return wanted & ~self.flags() if self._whole() else wanted

    def flags(self) -> Tensor:
        """Which rows are there (V,), as they are on disk now."""
        return _mapped(self.made, self.shape[:1], torch.uint8).bool()

    def table(self) -> Float[Tensor, "V d"]:
        """The rows, memory-mapped."""
        return _mapped(self.rows, self.shape, torch.float32)

    def write(self, ids: Tensor, states: Float[Tensor, "n d"]) -> None:
        """Rows first, then the flags that vouch for them."""
        with told(self.folder):
            self._create()
            table, flags = self.table(), _mapped(self.made, self.shape[:1], torch.uint8)
            table[ids] = states.float().cpu()
            flags[ids] = 1

    def _whole(self) -> bool:
        n_rows, d = self.shape
        sizes = ((self.rows, 4 * n_rows * d), (self.made, n_rows))
        return all(path.is_file() and path.stat().st_size == size for path, size in sizes)

    def _create(self) -> None:
        if self._whole():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        n_rows, d = self.shape
        for path, size in ((self.made, n_rows), (self.rows, 4 * n_rows * d)):
            with path.open("wb") as file:
                file.truncate(size)  # sparse: rows that are not made take no room


def _mapped(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    size = 1
    for n in shape:
        size *= n
    return torch.from_file(str(path), shared=True, size=size, dtype=dtype).view(shape)


def _text_key(model: "Model", kind: str, text: Any) -> str:
    """What tells tables of one model apart: the text, for `mean`."""
    if kind == "token":
        return ""
    return Text.of(text, model).digest


def _token_states(
    model: "Model", layers: list[int], ids: Tensor, text: Any
) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
    """States of tokens read alone, a few thousand tokens at a time."""
    before, after = _around(model)
    running = run(model, n_layers=max(1, max(layers)), attention="fast")
    for part in ids.split(STEP):
        passes = [
            Passage((*before, i, *after), (len(before),), line)
            for line, i in enumerate(part.tolist())
        ]
        found: dict[int, list[Tensor]] = defaultdict(list)
        lines: list[Tensor] = []
        for states in capture(running, passes, layers=layers):
            lines.append(states.lines)
            for layer in layers:
                found[layer].append(states.layers[layer].cpu())
        yield part[torch.cat(lines)], {layer: torch.cat(rows) for layer, rows in found.items()}


def _around(model: "Model") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a token is read between: start token and neutral word; what the tokenizer puts after."""
    encoder = Encoder(model)
    before = encoder.prefix
    if not before and model.family.causal:
        tokenizer = model.vocabulary.tokenizer
        start = getattr(tokenizer, "bos_token_id", None)
        start = getattr(tokenizer, "eos_token_id", None) if start is None else start
        before = () if start is None else (int(start),)
    (word,) = encoder.encode([NEUTRAL])
    return (*before, *word[:1]), encoder.suffix


def _mean_states(
    model: "Model", layers: list[int], ids: Tensor, text: Any
) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
    """Mean states over a token's places in a text; tokens that it never holds stay zero."""
    encoder = Encoder(model)
    framed = [encoder.framed(one) for one in encoder.encode(Text.of(text, model).lines)]
    passes = [
        Passage(f.ids, tuple(range(f.first, f.first + f.n)), line)
        for line, f in enumerate(framed)
        if f.n
    ]
    if not passes:
        raise TextError("the text holds no token to average over: give a longer one.")
    V = len(model.vocabulary)
    sums = {layer: torch.zeros(V, model.d, dtype=torch.float64) for layer in layers}
    counts = torch.zeros(V, dtype=torch.float64)
    running = run(model, n_layers=max(1, max(layers)), attention="fast")
    for states in capture(running, passes, layers=layers):
        kept = states.tokens < V
        counts.index_add_(0, states.tokens[kept], torch.ones(int(kept.sum()), dtype=torch.float64))
        for layer in layers:
            rows = states.layers[layer].double().cpu()[kept]
            sums[layer].index_add_(0, states.tokens[kept], rows)
    held = counts.clamp_min(1)[:, None]
    for part in ids.split(STEP):
        yield part, {layer: sums[layer][part] / held[part] for layer in layers}
