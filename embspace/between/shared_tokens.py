"""The rows of two vocabularies that name the same token, matched by token and never by index."""

import unicodedata
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from ..errors import VocabularyError
from ..weights.filters import filter_names
from ..weights.labels import Scheme, scheme_of
from ..weights.vocabulary import VocabularySpace

INNER = "##"  # how WordPiece marks a piece that continues a word
# Blocks of ideographs that BERT's tokenizers cut off as words of their own.
IDEOGRAPHS = (
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)),
    *((0x20000, 0x2CEAF), (0x2F800, 0x2FA1F)),
)


@dataclass(frozen=True)
class SharedTokens:
    """Rows of A and of B that name the same token, one to one, in the order of A's ids.

    `ids_a`, `ids_b`: n ids each, ids_a[i] and ids_b[i] being one token; `sizes`: how many rows the
    two vocabularies have; `identical`: one tokenizer on both sides; `n_added`: how many of the n
    are added tokens (special ones among them); `filters`: what was asked of every token.
    """

    ids_a: Int[Tensor, "n"]
    ids_b: Int[Tensor, "n"]
    sizes: tuple[int, int]
    identical: bool
    n_added: int
    filters: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids_a)

    @property
    def coverage(self) -> tuple[float, float]:
        """n over the V of each side, 0 to 1."""
        return len(self) / self.sizes[0], len(self) / self.sizes[1]

    def to_dict(self) -> dict[str, Any]:
        """Counts and shares, without the ids."""
        share_a, share_b = self.coverage
        return {
            "shared": len(self),
            "of_a": self.sizes[0],
            "of_b": self.sizes[1],
            "share_a": share_a,
            "share_b": share_b,
            "identical": self.identical,
            "added": self.n_added,
            "filters": list(self.filters),
        }


def shared_tokens(
    a: VocabularySpace, b: VocabularySpace, *, filters: str | Iterable[str] = ()
) -> SharedTokens:
    """Rows of two vocabularies that name the same token: all of them where the tokenizers agree.

    Tokens are equal when their bytes are, once the marks of word starts are understood: byte-level
    `Ġthe`, SentencePiece `▁the` and WordPiece `the` are one token, and so are `ing`, `ing` and
    `##ing`. Punctuation and ideographs, which WordPiece cuts off whatever stands before them, are
    the others' pieces without a space. Added tokens (special ones among them) are matched among
    themselves, by their text. `filters` (as in `VocabularySpace.mask`) hold on both sides.
    Raises VocabularyError without a tokenizer, or where fewer than two tokens are shared.
    """
    for space in (a, b):
        if space.tokenizer is None:
            raise VocabularyError(
                f"{space.name} has no tokenizer beside its weights, so its rows cannot be matched "
                "with another model's by token."
            )
    names = filter_names(filters)
    identical = a.texts == b.texts and _added(a) == _added(b)
    pairs = _same_rows(a) if identical else _matched(a, b)
    pairs = _passing(pairs, a, b, names)
    if len(pairs) < 2:
        raise VocabularyError(
            f"{a.name} and {b.name} share {len(pairs)} tokens"
            + (f" that pass {' and '.join(names)}" if names else "")
            + ": too few to compare them."
        )
    added = _added(a)
    ids_a, ids_b = torch.tensor(pairs).T
    n_added = sum(i in added for i, _ in pairs)
    return SharedTokens(ids_a, ids_b, (len(a), len(b)), identical, n_added, names)


def token_bytes(text: str) -> bytes:
    """The bytes of a token's text, in which U+DC00 … U+DCFF stand for single bytes."""
    parts = (
        bytes([ord(c) - 0xDC00]) if 0xDC00 <= ord(c) <= 0xDCFF else c.encode("utf8", "replace")
        for c in text
    )
    return b"".join(parts)


def _same_rows(space: VocabularySpace) -> list[tuple[int, int]]:
    """Every row that names a token, with itself."""
    return [(i, i) for i, text in enumerate(space.texts) if text is not None]


def _matched(a: VocabularySpace, b: VocabularySpace) -> list[tuple[int, int]]:
    """Pairs of ids with the same key, by A's ids."""
    schemes = scheme_of(a.tokenizer), scheme_of(b.tokenizer)
    of_a, of_b = (
        _by_key(s, k, schemes[0] == schemes[1]) for s, k in zip((a, b), schemes, strict=True)
    )
    return sorted((i, of_b[key]) for key, i in of_a.items() if key in of_b)


def _by_key(space: VocabularySpace, scheme: Scheme, one_scheme: bool) -> dict[Hashable, int]:
    """The id of every key. Where two tokens share one, the token that its tokenizer prefers."""
    added = _added(space)
    found: dict[Hashable, tuple[bool, int]] = {}
    for i, text in enumerate(space.texts):
        if text is None:
            continue
        spare = False
        if i in added:
            key: Hashable = ("added", text)
        elif one_scheme:
            key = text
        else:
            unmarked = _spaced(text, scheme)
            key, spare = token_bytes(unmarked), _is_spare(text, scheme)
        found[key] = min(found.get(key, (spare, i)), (spare, i))
    return {key: i for key, (_, i) in found.items()}


def _spaced(text: str, scheme: Scheme) -> str:
    """A token's text with its word start as a leading space, as byte-level vocabularies have it."""
    if scheme in ("bytes", "metaspace"):
        return text
    if scheme == "wordpiece" and text.startswith(INNER) and len(text) > len(INNER):
        return text.removeprefix(INNER)
    return text if _stands_alone(text) else " " + text


def _is_spare(text: str, scheme: Scheme) -> bool:
    """Whether a tokenizer uses this token only where it lacks another of the same bytes."""
    if scheme == "wordpiece":
        return text.startswith(INNER) and _stands_alone(text.removeprefix(INNER))
    return scheme == "metaspace" and len(text) == 1 and 0xDC00 <= ord(text) <= 0xDCFF


def _stands_alone(text: str) -> bool:
    """Whether BERT's tokenizers cut this character off as a word of its own."""
    if len(text) != 1:
        return False
    code, printable = ord(text), text.isascii() and text.isprintable()
    return (
        (printable and not text.isalnum() and not text.isspace())
        or unicodedata.category(text).startswith("P")
        or any(low <= code <= high for low, high in IDEOGRAPHS)
    )


def _added(space: VocabularySpace) -> set[int]:
    """Ids of tokens added to a vocabulary, special ones among them."""
    added = getattr(space.tokenizer, "added_tokens_decoder", {})
    return space.special | {int(i) for i in added}


def _passing(
    pairs: list[tuple[int, int]], a: VocabularySpace, b: VocabularySpace, names: tuple[str, ...]
) -> list[tuple[int, int]]:
    """The pairs that pass every filter on both sides."""
    passes_a, passes_b = a.mask(names), b.mask(names)
    if passes_a is None or passes_b is None:
        return pairs
    keep_a, keep_b = passes_a.tolist(), passes_b.tolist()
    return [(i, j) for i, j in pairs if keep_a[i] and keep_b[j]]
