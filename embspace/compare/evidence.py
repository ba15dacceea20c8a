"""The experiments that say whether weights may be read in vocabulary space, by their short names.

`from embspace import evidence`, then `evidence.pairs(model)` and so on. [DAR] §4, App. A, B.
"""

from typing import TYPE_CHECKING, Any

from ..projection.concepts import concept as concept
from ..projection.inverse import inverse_check as inverse
from ..projection.similar import pair_similarity as pairs
from .overlap import StateOverlap
from .overlap import state_overlap as states
from .recording import Texts
from .trust import trust as trust

if TYPE_CHECKING:
    from ..models.model import Model

__all__ = ["concept", "inverse", "logits", "pairs", "states", "trust"]


def logits(model: "Model", texts: Texts = None, **options: Any) -> StateOverlap:
    """`states` against the final state instead of the same layer's. [DAR] App. B.2."""
    return states(model, texts, against="final", **options)
