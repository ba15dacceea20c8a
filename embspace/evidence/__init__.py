"""The experiments that say whether weights may be read in vocabulary space, and the papers' claims.

`from embspace import evidence`, then `evidence.pairs(model)` and so on. [DAR] §4, App. A, B.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .concepts import concept as concept
    from .head_trust import trust as trust
    from .inverse_check import inverse_check as inverse
    from .matching_pairs import pair_similarity as pairs
    from .state_overlap import logits as logits
    from .state_overlap import state_overlap as states

_WHERE = {
    "concept": "concepts.concept",
    "inverse": "inverse_check.inverse_check",
    "logits": "state_overlap.logits",
    "pairs": "matching_pairs.pair_similarity",
    "states": "state_overlap.state_overlap",
    "trust": "head_trust.trust",
}
__all__ = ["concept", "inverse", "logits", "pairs", "states", "trust"]


def __getattr__(name: str) -> Any:
    """Import an experiment when it is first used."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, found = _WHERE[name].split(".")
    return getattr(import_module(f".{module}", __name__), found)
