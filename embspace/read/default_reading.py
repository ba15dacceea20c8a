"""The reading that a model gets when nobody says which: measured, layer by layer, and kept."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int
from torch import Tensor

from ..cache import cache_folder, read_json, write_atomically
from ..errors import EmbspaceError
from ..weights.settings import model_key
from .common_tokens import common_tokens
from .reading import COMMON, Reading
from .seen_rows import centred_unit, largest_cosine
from .sides import has_first_mlp, source_name, tables_of

if TYPE_CHECKING:
    from ..weights.model import Model

VERSION = 1  # of the rule and of the file
WORDS, PAIRS = 1024, 30  # tokens and pairs by which sides are compared
LEAD, LEAST = 0.02, 0.05  # by which first-mlp must be ahead of the embedding; what it must reach
ROOM = 0.9  # cosine that the most alike of random unit rows must stay below
FIELDS = ("source", "target", "norm", "centre", "unit", "reading_norm", "common")


@dataclass(frozen=True)
class Kept:
    """The readings of a model's layers, and how they were chosen: by the rule, or measured."""

    readings: Mapping[int, Reading]
    how: str


def chosen_reading(
    model: "Model", layer: int, reading: Reading | None, changes: Mapping[str, Any]
) -> Reading:
    """A reading with changes; the model's own for the layer where none is given."""
    if reading is None:
        reading = base_reading(model, layer, **changes)
    return reading.but(**changes)


def base_reading(model: "Model", layer: int, **changes: Any) -> Reading:
    """What a reading starts from when some of its settings are asked for.

    The papers' for `source="embedding"` and for the pseudo-inverse; otherwise the model's own, of
    which only the source needs measuring.
    """
    if changes.get("source") == "embedding" or changes.get("inverse") == "pinv":
        return Reading()
    if "source" in changes:
        return _usual(model)
    return default_reading(model, layer)


def default_reading(model: "Model", layer: int) -> Reading:
    """The reading of a layer when nobody says which.

    What `keep_readings` kept for the model (`embspace evidence readings` does), else the rule:

    - Heads so narrow that unit rows of unrelated tokens nearly coincide by chance (`has_room`)
      are read as in the papers, though never through an untied head's own matrix.
    - Otherwise rows are centred and of length one, of the `COMMON` tokens, and the source is
      `first-mlp` where its pairs are alike and more so than the embedding's (by `LEAST` and
      `LEAD`). How alike: the cosine of a pair's centred rows of E, averaged over the 30 strongest
      W_VO pairs of each head of the layer among the first 1,024 common words.

    No text, label or forward pass is needed; what was found is kept in the user's cache.
    """
    with _lock:
        found = kept_readings(model)
        if layer in found.readings:
            return found.readings[layer]
        found = Kept({**found.readings, layer: _by_rule(model, layer)}, found.how)
        _known[model] = found
        _write(model, found)
        return found.readings[layer]


def keep_readings(model: "Model", readings: Mapping[int, Reading], how: str) -> None:
    """Make these the default readings of a model's layers, on this machine.

    Args:
        model: the model they were measured on.
        readings: layer -> reading; maps and texts are not kept.
        how: a few words for the heading, such as "measured on 3,000 lines of wiki".

    Raises:
        EmbspaceError: a reading needs maps or a text, or the cache cannot be written.
    """
    for layer, reading in readings.items():
        if reading.maps or reading.text is not None:
            raise EmbspaceError(f"layer {layer}: a default reading needs no maps and no text.")
    _known[model] = Kept(dict(readings), how)
    write_atomically(_path(model), _json(model, _known[model]), make_folder=True)


_known: "WeakKeyDictionary[Model, Kept]" = WeakKeyDictionary()
_lock = RLock()  # circuits are searched by several threads
RULE = "by rule"


def kept_readings(model: "Model") -> Kept:
    """What is kept of a model's default readings; nothing where there is none of this version."""
    if model not in _known:
        _known[model] = _read(model)
    return _known[model]


def has_room(model: "Model") -> bool:
    """Whether unit rows of a head's width can single out pairs of tokens from all V² of them."""
    return largest_cosine(len(model.vocabulary) ** 2, model.d_head) <= ROOM


def _by_rule(model: "Model", layer: int) -> Reading:
    usual = _usual(model)
    if not has_room(model):
        return usual.but(centre=False, unit=False, common="all")
    if layer == 0 or not has_first_mlp(model):
        return usual
    other, words = usual.but(source="first-mlp"), _words(model)
    found = likeness(model, layer, other, words)
    ahead = found >= LEAST and found >= likeness(model, layer, usual, words) + LEAD
    return other if ahead else usual


def _usual(model: "Model") -> Reading:
    source: Any = source_name(model)
    return Reading(source=source, centre=True, unit=True, common=COMMON)


def likeness(model: "Model", layer: int, reading: Reading, ids: Int[Tensor, "n"]) -> float:
    """Mean cosine in E of the tokens in a layer's strongest W_VO pairs, by a reading's source.

    The `PAIRS` strongest of each head among some tokens, weights as stored.
    """
    space = model.vocabulary
    at = ids.to(space.table.device)
    target = space.table[at].to(model.device).double()
    source = tables_of(model).source(reading, layer, ids)[at].to(model.device).double()
    like = centred_unit(target.clone(), Reading(centre=True, unit=True))
    attention, found = model.attention(layer), []
    W_V, W_O = attention.W_V.double(), attention.W_O.double()
    for head in range(model.n_heads):
        asks = centred_unit(source @ W_V[attention.kv_head(head)], reading)
        raises = centred_unit(target @ W_O[head].T, reading)
        scores = (asks.float() @ raises.float().T).fill_diagonal_(-torch.inf)
        k = min(PAIRS, len(ids))
        rows = scores.amax(1).topk(k).indices  # the k strongest pairs lie in k rows at most
        at = scores[rows].flatten().topk(k).indices
        found.append((like[rows[at // len(ids)]] * like[at % len(ids)]).sum(1))
    return float(torch.cat(found).mean())


def _words(model: "Model") -> Int[Tensor, "n"]:
    """The common words by which sides are compared; common tokens where there are few words."""
    common, space = common_tokens(model, COMMON), model.vocabulary
    if space.tokenizer is None:
        return common[:WORDS]
    words = common[[space.is_word(i) for i in common.tolist()]]
    return (words if len(words) >= WORDS // 8 else common)[:WORDS]


def _read(model: "Model") -> Kept:
    data: Any = read_json(_path(model))
    try:
        if data["version"] != VERSION or data["model"] != model_key(model):
            return Kept({}, RULE)
        readings = {int(layer): Reading(**fields) for layer, fields in data["readings"].items()}
        return Kept(readings, str(data["how"]))
    except (TypeError, KeyError, ValueError, AttributeError, EmbspaceError):  # a damaged file
        return Kept({}, RULE)


def _write(model: "Model", kept: Kept) -> None:
    """Keep what the rule found; a cache that cannot be written costs time, nothing else."""
    with suppress(EmbspaceError):
        write_atomically(_path(model), _json(model, kept), make_folder=True)


def _json(model: "Model", kept: Kept) -> str:
    readings = {
        layer: {name: getattr(reading, name) for name in FIELDS}
        for layer, reading in sorted(kept.readings.items())
    }
    data = {"version": VERSION, "model": model_key(model), "how": kept.how, "readings": readings}
    return json.dumps(data) + "\n"


def _path(model: "Model") -> Path:
    return cache_folder("readings") / f"{model_key(model)}.json"
