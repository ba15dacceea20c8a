"""The experiments that say whether weights may be read in vocabulary space, by their short names.

`from embspace import evidence`, then `evidence.pairs(model)` and so on. [DAR] §4, App. A, B.
"""

from typing import TYPE_CHECKING, Any

from ..live.batches import Texts
from .concepts import concept as concept
from .inverse import inverse_check as inverse
from .matching_pairs import pair_similarity as pairs
from .state_overlap import StateOverlap
from .state_overlap import state_overlap as states
from .trust import trust as trust

if TYPE_CHECKING:
    from ..weights.model import Model

__all__ = ["concept", "inverse", "logits", "pairs", "states", "trust"]


def logits(model: "Model", texts: Texts = None, **options: Any) -> StateOverlap:
    """`states` against the final state instead of the same layer's. [DAR] App. B.2."""
    return states(model, texts, against="final", **options)
