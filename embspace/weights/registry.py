"""Every architecture that is read by name, and the shapes under which others may be read.

A new family is usually a `replace(LLAMA, …)` of one line; `check` then proves it on a model.
"""

from dataclasses import replace
from typing import Any

from . import decoders, encoders
from .family import Family, Transform

__all__ = ["BY_TYPE", "FAMILIES", "GENERIC", "Family", "Transform"]

FAMILIES: tuple[Family, ...] = tuple(
    value
    for part in (decoders, encoders)
    for value in vars(part).values()
    if isinstance(value, Family)
)
BY_TYPE = {model_type: family for family in FAMILIES for model_type in family.types}


def _as_given(config: Any) -> dict[str, Any]:
    """No adaptation: what an unknown config says of another family's conventions is not known."""
    return {}


# Shapes under which an unknown architecture may be read, each only with a certificate.
GENERIC = tuple(
    replace(family, types=(), generic=True, adapt=_as_given)
    for family in (
        decoders.LLAMA,
        replace(decoders.LLAMA, interleaved=True),
        replace(decoders.LLAMA, norm="layer"),
        replace(decoders.LLAMA, gate=None),
        decoders.GEMMA2,
        replace(decoders.GEMMA2, gain_offset=0.0, embedding_scaled=False),
        decoders.OLMO2,
        decoders.COHERE,
        decoders.PHI3,
        decoders.GLM,
        decoders.STARCODER2,
        decoders.PHI,
        decoders.MIXTRAL,
        decoders.QWEN2_MOE,
        decoders.GPT_NEOX,
        replace(decoders.GPT_NEOX, fused="slabs"),
        decoders.GPT2,
        replace(decoders.GPT2, transposed=False),
        decoders.OPT,
        encoders.BERT,  # with the head, of any encoder's, that its file holds
    )
)
