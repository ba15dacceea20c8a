"""Texts as a classifier reads them: whole, with the model's special tokens, cut to a length."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..errors import TextError
from ..text.passages import Encoder, Passage
from ..weights.rotary import alike_up_to

if TYPE_CHECKING:
    from ..weights.model import Model

Keep = Literal["start", "end"]
KEEPS: tuple[Keep, ...] = ("start", "end")


def read_texts(
    model: "Model", texts: Sequence[str], *, max_tokens: int | None = None, keep: Keep = "start"
) -> tuple[list[Passage], int]:
    """One pass a text, every position taken, and how many texts were cut to fit.

    `keep`: which end of a text that is too long is kept. Raises TextError for a text without
    tokens, and for more tokens than the model takes.
    """
    encoder = Encoder(model, max_tokens=max_tokens)
    room = encoder.max_tokens - len(encoder.prefix) - len(encoder.suffix)
    passages, n_cut = [], 0
    for line, ids in enumerate(encoder.encode(texts)):
        if not ids:
            raise TextError(f"text {line + 1} has no token that {model.name} knows.")
        framed = encoder.framed(ids[-room:] if keep == "end" else ids)
        n_cut += len(ids) > room
        passages.append(Passage(framed.ids, tuple(range(len(framed.ids))), line))
    _require_alike(model, max((len(p.ids) for p in passages), default=0))
    return passages, n_cut


def _require_alike(model: "Model", n: int) -> None:
    """Raise TextError for texts so long that others of their batch would be turned by them."""
    most = alike_up_to(model.config)
    if most is not None and n > most:
        raise TextError(
            f"a text of {n} tokens changes how {model.name} turns shorter ones beside it: take "
            f"{most} tokens at most (max_tokens)."
        )


def longest(*models: "Model") -> int:
    """Tokens that all of some models take, by default."""
    return min(Encoder(model).max_tokens for model in models)


def padding(model: "Model") -> int:
    """An id to pad with: the config's own where it names one (some count positions from it)."""
    found: Any = getattr(model.config, "pad_token_id", None)
    rows = model.checkpoint.shape(f"{model.embedding_path}.weight")[0]
    return found if isinstance(found, int) and 0 <= found < rows else 0
