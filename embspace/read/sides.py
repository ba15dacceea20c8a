"""Sides: what each token looks like where a weight reads or writes, a table (V × d) by layer."""

from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import EmbspaceError
from ..live.rebuilt import fed_forward, written
from ..weights import scales
from ..weights.layout import spell
from ..weights.norms import apply_norm, shift_of
from .reading import Reading
from .state_table import state_table

if TYPE_CHECKING:
    from ..weights.model import Model

BLOCK = 1024  # rows that are made together
Ids = Int[Tensor, "n"] | None


class Tables:
    """The tables of one model, made when asked for: rows of some tokens, or of all.

    A table holds a row for every token; rows that nobody asked for are zero and take no memory.
    """

    def __init__(self, model: "Model") -> None:
        self.model, self.lock = model, RLock()  # circuits are searched by several threads
        self.counted: dict[Any, tuple[Any, Tensor]] = {}  # text and ids of its common tokens
        self.seen: dict[Any, Any] = {}  # turned rows, as `seen_rows` keeps them
        self._made: dict[str, tuple[Tensor, Tensor]] = {}  # name -> table, which rows are made

    def source(self, reading: Reading, layer: int, ids: Ids) -> Float[Tensor, "V d"]:
        """What tokens look like to weights of a block that read.

        Raises EmbspaceError where the model has no such side.
        """
        model, name = self.model, reading.source
        if name == "first-mlp" and layer > 0:
            table = self._filled(name, ids, first_mlp_rows)
        elif name in ("token", "mean"):
            table = state_table(model, name, layer, ids, reading.text)
        elif name == "embedding" or (name == "input-embedding" and model.head_path is None):
            table = model.vocabulary.table
        elif name == "input-embedding":
            table = model.embedding("input")[: len(model.vocabulary)]
        else:
            table = self._filled("input", ids, input_rows)
        return table

    def target(self, ids: Ids) -> Float[Tensor, "V d"]:
        """The directions that raise tokens: rows of E."""
        return self.model.vocabulary.table

    def _filled(
        self, name: str, ids: Ids, make: "Callable[[Model, Tensor], Tensor]"
    ) -> Float[Tensor, "V d"]:
        """A table of rows that weights alone give; rows once made are kept."""
        with self.lock:
            return self._fill(name, ids, make)

    def _fill(
        self, name: str, ids: Ids, make: "Callable[[Model, Tensor], Tensor]"
    ) -> Float[Tensor, "V d"]:
        model, n = self.model, len(self.model.vocabulary)
        if name not in self._made:
            table = torch.zeros(n, model.d, dtype=model.dtype, device=model.device)
            self._made[name] = table, torch.zeros(n, dtype=torch.bool)
        table, made = self._made[name]
        wanted = torch.ones(n) if ids is None else torch.zeros(n).index_fill(0, ids.cpu(), 1)
        for start in range(0, n, BLOCK):  # whole blocks: a row never depends on what else is asked
            block = slice(start, start + BLOCK)
            if bool(wanted[block].any()) and not bool(made[start]):
                table[block] = make(model, torch.arange(start, min(start + BLOCK, n)))
                made[block] = True
        return table


_tables: "WeakKeyDictionary[Model, Tables]" = WeakKeyDictionary()


def tables_of(model: "Model") -> Tables:
    """The tables of a model; kept as long as it lives."""
    if model not in _tables:
        _tables[model] = Tables(model)
    return _tables[model]


def source_name(model: "Model") -> str:
    """The embedding that a source is read with: the input embedding, E itself where they are one.

    With an untied head a token's input row says what it looks like; E only what raises it.
    """
    return "embedding" if model.head_path is None else "input-embedding"


def has_first_mlp(model: "Model") -> bool:
    """Whether block 0 has one feed-forward layer for all tokens."""
    return model.experts(0) == [None]


def input_rows(model: "Model", ids: Int[Tensor, "n"]) -> Float[Tensor, "n d"]:
    """e_in, what block 0 reads of tokens, as the live model has it but for positions and types.

    Scaled (Gemma), normed (BERT, BLOOM) and projected (ALBERT, OPT-350m) where the model does so.
    """
    rows = model.embedding_rows(ids) * scales.embedding_scale(model)
    layout, family = model.layout, model.family
    path = spell(family.embed_norm, layout.prefix, model.checkpoint)
    if path:
        gain, shift = (model.optional(f"{path}.{end}") for end in ("weight", "bias"))
        gain = None if gain is None else gain + family.gain_offset
        rows = apply_norm(model, rows, gain, shift)
    path = spell(family.project_in, layout.prefix, model.checkpoint)
    if path is None:
        return rows
    weight, bias = model.linear(path)
    return rows @ weight.T if bias is None else rows @ weight.T + bias


def first_mlp_rows(model: "Model", ids: Int[Tensor, "n"]) -> Float[Tensor, "n d"]:
    """MLP_0(norm(e_in)), what the first block's feed-forward layer adds for a token alone.

    Through its post-norm (Gemma 2/3) and times the block's multiplier (Granite); in a post-norm
    block the norm is the one after attention, which adds nothing here. [Elhelo & Geva 2024]
    Raises EmbspaceError where block 0 is a mixture of experts.
    """
    if not has_first_mlp(model):
        raise EmbspaceError(
            f"block 0 of {model.name} is a mixture of experts: it has no first-mlp side; use "
            "embedding or token."
        )
    family, x = model.family, input_rows(model, ids)
    if family.attn_add:
        path = spell(family.attn_add, model.layout.block(0), model.checkpoint)
        gain, shift = (model.optional(f"{path}.{end}") for end in ("weight", "bias"))
        x = apply_norm(model, x, gain, shift)
    elif family.ff_norm:
        x = apply_norm(model, x, model.reading_gain(0, "ff"), shift_of(model, 0, family.ff_norm))
    return written(model, 0, "ff", fed_forward(model, model.feed_forward(0), x))


def normed_rows(
    model: "Model", layer: int, part: str, rows: Float[Tensor, "n d"]
) -> Float[Tensor, "n d"]:
    """Rows through the norm by which a part of a block reads the stream, gain and shift too.

    Raises ModelError for a post-norm block, which reads through none.
    """
    names = model.family.attn_norm if part == "attn" else model.family.ff_norm
    gain = model.reading_gain(layer, part)  # type: ignore[arg-type]  # refuses post-norm blocks
    if not names or (model.family.bare_first and layer == 0 and part == "attn"):
        return rows
    return apply_norm(model, rows, gain, shift_of(model, layer, names))
