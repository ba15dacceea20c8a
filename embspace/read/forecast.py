"""What a piece of work will need, before it starts: memory for certain, time roughly."""

from typing import TYPE_CHECKING

import torch

from ..memory import Needs, flops_per_second
from ..weights.vocabulary import BLOCK, BUFFER
from .parallel import bytes_of_sides, circuits_at_once

if TYPE_CHECKING:
    from ..weights.model import Model

# Share of the multiplications of a full product that the pruned search does, as an order of
# magnitude: 2 % measured on SmolLM2 (heads of 64), 10 to 30 % on Gemma-3 (heads of 256).
SEARCHED, SEARCHED_AT, SEARCHED_POWER = 0.02, 64, 1.7
SPELLINGS = 2  # of a word, with and without a leading space
PAIR = 1000  # bytes a found pair takes in the search, as a result and while it is printed
LABEL = 300  # bytes a token's text, label and index entry take
SLACK = 256 << 20  # pools, tiles and copies of no great size


def needs_of_circuits(
    model: "Model", n: int, *, rows: int | None = None, k: int = 0, plain: bool = True
) -> Needs:
    """The k strongest pairs of n circuits, over all tokens or only `rows` of them.

    plain: rows of E as they are; otherwise those of other sides are made, and held in float64.
    """
    V, d, d_h = len(model.vocabulary), model.d, model.d_head
    taking_part = V if rows is None else rows
    sides = min(n, circuits_at_once(model, taking_part)) * bytes_of_sides(model, taking_part)
    projections = 4.0 * taking_part * d * d_h
    searched = min(1.0, SEARCHED * (d_h / SEARCHED_AT) ** SEARCHED_POWER)
    search = 2.0 * taking_part**2 * d_h * searched
    flops = n * (projections + search) + _gram_flops(model)
    found = min(n, 2) * min(k, taking_part**2) * PAIR  # two circuits of a head share a page
    private = _common(model) + sides + found + (0 if plain else _bytes_of_made(model, taking_part))
    return Needs(private, _table_bytes(model), flops / flops_per_second())


def needs_of_rows(model: "Model", n: int) -> Needs:
    """Whole rows or columns of n circuits for one token."""
    V, d, d_h = len(model.vocabulary), model.d, model.d_head
    flops = n * SPELLINGS * 4.0 * V * d + 4.0 * d * d * d_h + _gram_flops(model)
    return Needs(_common(model) + 8 * V * 8, _table_bytes(model), flops / flops_per_second())


def needs_of_vectors(model: "Model", n: int, *, passes: int = 2) -> Needs:
    """Projections of n vectors, `passes` times over the vocabulary."""
    flops = passes * 2.0 * n * len(model.vocabulary) * model.d
    return Needs(_common(model) + 4 * BUFFER, _table_bytes(model), flops / flops_per_second())


def needs_of_neurons(
    model: "Model", n_layers: int, *, passes: int, each: int | None = None
) -> Needs:
    """All neurons (or `each` of them) of n feed-forward layers or experts, layer by layer.

    A neuron alone is three vectors at most, read from both ends; all are read by their values.
    """
    n = _d_ff(model) if each is None else 3 * each
    return needs_of_vectors(model, n_layers * n, passes=passes)


def needs_of_token(model: "Model") -> Needs:
    """One token against all heads and neurons of a model."""
    V, d = len(model.vocabulary), model.d
    n = 4.0 * model.n_layers * model.n_heads
    flops = n * 2.0 * V * d + _gram_flops(model) + model.n_layers * 6.0 * _d_ff(model) * d * d
    return Needs(_common(model) + 4 * BUFFER, _table_bytes(model), flops / flops_per_second())


def _bytes_of_made(model: "Model", rows: int) -> int:
    """A source table in the working dtype, and both sides of each circuit in hand in float64."""
    held = 4 * circuits_at_once(model, rows) * rows * model.d_head * 8
    return rows * model.d * _width(model) + held


def _common(model: "Model") -> int:
    """A layer's matrices in the working dtype, blocks of E in float64, d × d sums, labels."""
    V, d, width = len(model.vocabulary), model.d, _width(model)
    attention = 4 * model.n_heads * model.d_head * d * width
    feed_forward = 6 * _d_ff(model) * d * width
    on_device = 0 if model.device.type == "cpu" else _table_bytes(model)
    return (
        max(attention, feed_forward) + 2 * BLOCK * d * 8 + 4 * d * d * 8 + V * LABEL + SLACK
    ) + on_device


def _gram_flops(model: "Model") -> float:
    return 4.0 * len(model.vocabulary) * model.d**2  # float64: twice the work


def _d_ff(model: "Model") -> int:
    """Rows of the feed-forward matrices (of one expert), from the config; 4 d where it has none."""
    names = ("moe_intermediate_size", "intermediate_size", "n_inner", "ffn_dim", "hidden_dim")
    found = (getattr(model.config, name, None) for name in names)
    return next((int(n) for n in found if isinstance(n, int) and n > 0), 4 * model.d)


def _width(model: "Model") -> int:
    return torch.empty(0, dtype=model.dtype).element_size()


def _table_bytes(model: "Model") -> int:
    table = model.vocabulary.table
    return table.numel() * table.element_size()
