"""What the spellings of a word are in a vocabulary."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embspace.weights.vocabulary import VocabularySpace


def tell_spellings(space: "VocabularySpace", word: str, say: Callable[[str], None]) -> None:
    """Say which spellings of a word are several tokens and therefore left out."""
    from embspace.show.wording import clipped

    lookups = space.find(word)
    if any(lookup.single for lookup in lookups):
        for lookup in lookups:
            if not lookup.single:
                text, parts = clipped(repr(lookup.text)), clipped(" + ".join(lookup.labels))
                say(f"note: {text} is {len(lookup.ids)} tokens ({parts}), left out")
