"""What the spellings of a word are in a vocabulary."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embspace.vocabulary import VocabularySpace


def tell_spellings(space: "VocabularySpace", word: str, say: Callable[[str], None]) -> None:
    """Say which spellings of a word are several tokens and therefore left out."""
    lookups = space.find(word)
    if any(lookup.single for lookup in lookups):
        for lookup in lookups:
            if not lookup.single:
                parts = " + ".join(lookup.labels)
                say(f"note: {lookup.text!r} is {len(lookup.ids)} tokens ({parts}), left out")
