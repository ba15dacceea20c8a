"""How many positions a model has: the longest text that it takes."""

from typing import TYPE_CHECKING, Any

from .running import skeleton

if TYPE_CHECKING:
    from ..weights.model import Model

SIZES = ("max_position_embeddings", "n_positions", "max_seq_len")
TABLED = ("gptj", "mpt")  # positions computed, but into a table of fixed length


def position_limit(model: "Model") -> int | None:
    """Tokens of the longest text, special ones included.

    None where there is no end (ALiBi) or only a trained length (rotary). Embeddings that count
    positions from their padding id on (RoBERTa and its kind) take fewer than their table has rows:
    that is asked of transformers' own module, built without weights.

    Raises:
        CannotRunError: Transformers has no class for the model.
    """
    config: Any = model.config
    n = next((n for name in SIZES if (n := getattr(config, name, None))), None)
    ends = model.family.positions in ("learned", "relative") or config.model_type in TABLED
    if not ends or not isinstance(n, int):
        return None
    return n - _first_position(model)


def _first_position(model: "Model") -> int:
    """The row of the position table that a text's first token gets: after the padding id, or 0."""
    for name, table in skeleton(model).named_modules():
        padding = getattr(table, "padding_idx", None)
        if name.rpartition(".")[2] == "position_embeddings" and padding is not None:
            return int(padding) + 1
    return 0
