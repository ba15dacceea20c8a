"""A side's rows as they are multiplied: normed, times a thin matrix, centred, of length one."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import VocabularyError
from ..weights.vocabulary import VocabularySpace
from .common_tokens import common_tokens
from .factors import Factor
from .reading import Reading
from .sides import normed_rows, tables_of

if TYPE_CHECKING:
    from ..weights.model import Model

CHUNK = 4096  # rows a product takes at a time
SEEN = 2  # tables of turned rows that are kept, one for either end


def centred_unit(
    rows: Float[Tensor, "n m"], reading: Reading, own: int | None = None
) -> Float[Tensor, "n m"]:
    """Rows less the mean of the first `own` of them and of length one, as a reading asks, in place.

    A row without length, which has no direction, stays zero.
    """
    if reading.centre:
        rows -= rows[:own].mean(dim=0)
    if reading.unit:
        lengths = rows.norm(dim=1, keepdim=True)
        rows /= torch.where(lengths > 0, lengths, 1.0)
    return rows


def largest_cosine(n_pairs: float, width: float) -> float:
    """About the largest cosine of n pairs of random directions in `width` dimensions.

    A pair's exceeds c with a chance of about (1 - c²)^((width - 1) / 2): one of n does at the c
    where that is 1 / n.
    """
    if width <= 1:
        return 1.0
    return (1 - max(n_pairs, 1.0) ** (-2 / (width - 1))) ** 0.5


def asked_ids(model: "Model", reading: Reading) -> Int[Tensor, "n"]:
    """Ids of the tokens that take part in a reading."""
    if reading.common == "all":
        return torch.arange(len(model.vocabulary))
    counted = tables_of(model).counted  # a text is read once, not for every circuit
    key = (reading.common, id(reading.text))
    if key not in counted:
        counted[key] = reading.text, common_tokens(model, reading.common, reading.text)
    return counted[key][1]


def n_asked(model: "Model", reading: Reading) -> int:
    """How many tokens take part in a reading."""
    return len(asked_ids(model, reading))


def asked_mask(
    model: "Model", reading: Reading, filters: tuple[str, ...] = ()
) -> Bool[Tensor, "V"] | None:
    """Which tokens take part in a reading and pass the filters; None for all.

    Raises VocabularyError where none does.
    """
    mask, space = model.vocabulary.mask(filters), model.vocabulary
    if reading.common == "all":
        return mask
    common = torch.zeros(len(space), dtype=torch.bool)
    common = common.index_fill(0, asked_ids(model, reading), True)
    both = common if mask is None else common & mask
    if not bool(both.any()):
        raise VocabularyError(
            f"none of the {int(common.sum()):,} common tokens of {space.name} passes "
            f"{' and '.join(filters)}: use common='all'."
        )
    return both


def thin_factor(
    model: "Model",
    reading: Reading,
    layer: int,
    end: str,
    matrix: Float[Tensor, "d d_h"],
    extra: Iterable[int] = (),
) -> Factor:
    """One side of a circuit, as the search takes it: float64 rows of width d_h, and the identity.

    end: "source" or "target"; extra: tokens whose rows are made though they do not take part, and
    do not move the mean. Rows of other tokens are zero: the search must leave them out.
    """
    ids = asked_ids(model, reading)
    more = torch.tensor(sorted(set(extra) - set(ids.tolist())), dtype=torch.int64)
    both = torch.cat([ids, more])
    rows = _thin_rows(model, reading, layer, end, matrix, both)
    centred_unit(rows, reading, len(ids))
    table = torch.zeros(len(model.vocabulary), matrix.shape[1], dtype=torch.float64)
    table = table.to(rows.device)
    table[both] = rows
    return Factor(table, torch.eye(matrix.shape[1], dtype=torch.float64, device=rows.device))


def _thin_rows(
    model: "Model", reading: Reading, layer: int, end: str, matrix: Tensor, ids: Tensor
) -> Float[Tensor, "n d_h"]:
    """Rows of a side times a thin matrix, in float64."""
    tables = tables_of(model)
    table = tables.source(reading, layer, ids) if end == "source" else tables.target(ids)
    through = matrix.double()
    out = []
    for part in ids.split(CHUNK):
        rows = table[part.to(table.device)].to(matrix.device)
        if end == "source" and reading.reading_norm:
            rows = normed_rows(model, layer, "attn", rows.to(model.dtype))
        out.append(rows.double() @ through)
    return torch.cat(out)


def seen_space(
    model: "Model", reading: Reading, layer: int, end: str, part: str
) -> VocabularySpace:
    """The vocabulary with the rows by which single vectors of a layer are read.

    Rows of tokens that do not take part are zero. Maps of `mat` are folded into the vectors.
    """
    space, tables = model.vocabulary, tables_of(model)
    if reading.is_plain:
        return space
    ids = asked_ids(model, reading)
    table = tables.source(reading, layer, ids) if end == "source" else tables.target(ids)
    at = (layer, part) if end == "source" and reading.reading_norm else None
    key = (end, reading, id(table), at)
    with tables.lock:  # the same rows serve layer after layer
        if key not in tables.seen:
            rows = _whole_rows(model, reading, layer, end, part, ids)
            whole = torch.zeros(len(space), space.d, dtype=torch.float64, device=rows.device)
            whole[ids.to(rows.device)] = centred_unit(rows, reading)
            while len(tables.seen) >= SEEN:
                tables.seen.pop(next(iter(tables.seen)))
            tables.seen[key] = space.with_rows(whole)
        return tables.seen[key]


def seen_rows(
    model: "Model", reading: Reading, layer: int, end: str, part: str, of: Sequence[int]
) -> Float[Tensor, "n d"]:
    """The rows that single vectors of a layer meet for some tokens, in float64."""
    ids = asked_ids(model, reading)
    rows = _whole_rows(model, reading, layer, end, part, torch.tensor(of))
    if reading.centre:
        rows -= _whole_rows(model, reading, layer, end, part, ids).mean(dim=0)
    return centred_unit(rows, reading.but(centre=False))


def _whole_rows(
    model: "Model", reading: Reading, layer: int, end: str, part: str, ids: Tensor
) -> Float[Tensor, "n d"]:
    tables = tables_of(model)
    table = tables.source(reading, layer, ids) if end == "source" else tables.target(ids)
    rows = table[ids.to(table.device)].to(model.device)
    if end == "source" and reading.reading_norm:
        rows = normed_rows(model, layer, part, rows.to(model.dtype))
    return rows.double()


def source_rows(
    model: "Model", layer: int, reading: Reading, ids: Int[Tensor, "n"]
) -> Float[Tensor, "n d"]:
    """What tokens look like to a layer's heads, before any centring, in the model's dtype."""
    table = tables_of(model).source(reading, layer, ids)
    rows = table[ids.to(table.device)].to(model.device, model.dtype)
    return normed_rows(model, layer, "attn", rows) if reading.reading_norm else rows


def source_mean(model: "Model", layer: int, reading: Reading) -> Float[Tensor, "d"]:
    """The mean of those rows over the whole vocabulary."""
    every = torch.arange(len(model.vocabulary))
    tables_of(model).source(reading, layer, None)  # all rows at once, then as made
    parts = [source_rows(model, layer, reading, ids).double().sum(0) for ids in every.split(CHUNK)]
    return (torch.stack(parts).sum(0) / len(every)).to(model.dtype)
