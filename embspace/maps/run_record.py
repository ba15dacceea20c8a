"""What a result that read text records of its run, and how far batches change 16-bit answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..live.capture import capture_all
from ..live.running import Running
from ..text.passages import Passage, Passages
from .decoding import Head

if TYPE_CHECKING:
    from ..weights.model import Model

HALF = ("bfloat16", "float16")
SAMPLED = 64  # positions whose answer is compared between batches
CHANGED = "batch_changes"


def record_of(model: "Model", taken: Passages) -> dict[str, Any]:
    """Text and its hash, rows, how positions were taken and the seed, dtype and batch of the run.

    The dtype of the weights is in the provenance of the model.
    """
    return {**taken.settings, "rows": taken.n_rows, **model.run_settings.record}


def batch_changes(
    running: Running, passes: Sequence[Passage]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How often the model's own first token changes when a text is run alone, not in a batch.

    Measured on the first 64 positions or so, where the run is in 16 bits; else nothing to record.
    Returns ({"batch_changes": {"rows", "changed"}}, a sentence that says so).
    """
    how = running.model.run_settings
    if how.dtype not in HALF:
        return {}, ()
    some: list[Passage] = []
    for one in passes:
        if sum(len(p.keep) for p in some) >= SAMPLED:
            break
        some.append(one)
    head = Head(running.model)
    together, alone = (_answers(head, running, some, size) for size in (how.batch_tokens, 1))
    n, changed = len(alone), int((together != alone).sum())
    said = (
        f"In {how.dtype} the model's own first token changes at {changed} of {n} positions when a "
        f"text is run alone and not in batches of {how.batch_tokens} tokens."
    )
    return {CHANGED: {"rows": n, "changed": changed}}, (said,)


def _answers(head: Head, running: Running, passes: Sequence[Passage], batch_tokens: int) -> Tensor:
    """The model's first token at the taken positions; `batch_tokens` 1: each pass alone."""
    L = running.n_layers
    found = capture_all(running, passes, layers=[L], batch_tokens=batch_tokens)
    with torch.no_grad():
        x = found.layers[L]
        return torch.cat([head(x[part]).argmax(-1) for part in head.slices(len(x))])
