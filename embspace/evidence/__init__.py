"""The experiments that say whether weights may be read in vocabulary space, and the claims.

`from embspace import evidence`, then `evidence.pairs(model)` and so on: see `experiments`. They are
imported with the package, for two of them have the names of their files.
"""

from .experiments import concept, inverse, logits, pairs, states, trust

__all__ = ["concept", "inverse", "logits", "pairs", "states", "trust"]
