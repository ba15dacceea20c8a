"""Readable, unique labels of tokens: word starts kept visible, partial characters as bytes."""

import re
import unicodedata
from typing import Any, Literal

SPACE = "·"
Scheme = Literal["bytes", "metaspace", "wordpiece", "plain"]
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_texts(tokenizer: Any, n: int) -> list[str | None]:
    """The raw text of ids 0 … n-1, undecodable bytes as surrogates; None where no token exists.

    Word-starting pieces carry a leading space in byte-level and SentencePiece vocabularies;
    inner WordPiece pieces keep their `##`.
    """
    pieces = tokenizer.convert_ids_to_tokens(list(range(min(n, n_ids(tokenizer)))))
    added = {int(i) for i in getattr(tokenizer, "added_tokens_decoder", {})}
    scheme = scheme_of(tokenizer)
    texts = [
        None if piece is None else piece if i in added else _text(piece, scheme)
        for i, piece in enumerate(pieces)
    ]
    return texts + [None] * (n - len(texts))


def n_ids(tokenizer: Any) -> int:
    """One more than the largest id: more than there are tokens where some ids are left out."""
    return max(len(tokenizer), max(tokenizer.get_vocab().values(), default=-1) + 1)


def scheme_of(tokenizer: Any) -> Scheme:
    """How a tokenizer writes the beginning of a word, from its own decoder."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = getattr(backend, "decoder", None)
    state = decoder.__getstate__().decode("utf8") if decoder is not None else ""
    for scheme, marks in _DECODERS.items():
        if any(mark in state for mark in marks):
            return scheme
    vocabulary = tokenizer.get_vocab()
    if any(piece.startswith("##") for piece in vocabulary):
        return "wordpiece"
    if any(piece.startswith("▁") for piece in vocabulary):
        return "metaspace"
    return "bytes" if any(piece.startswith("Ġ") for piece in vocabulary) else "plain"


def label(text: str) -> str:
    """Text made safe and visible in one line: spaces as `·`, controls and odd bytes escaped.

    Injective: two different texts never get the same label.
    """
    if text.isprintable():
        shown = text.translate(_PLAIN)
    else:
        shown = "".join(_visible(char) for char in text)
    return "◌" + shown if shown and unicodedata.category(shown[0]).startswith("M") else shown


def labels(texts: list[str | None], special: set[int]) -> list[str]:
    """A label for every row: tokens as text, special ones in ⟪⟫, rows without a token by number."""
    seen: set[str] = set()
    out = []
    for i, text in enumerate(texts):
        if text is None:
            shown = f"(row {i}: no token)"
        else:
            shown = f"⟪{label(text)}⟫" if i in special else label(text) or "(empty)"
        while shown in seen:
            shown = f"{shown}#{i}"
        seen.add(shown)
        out.append(shown)
    return out


def _visible(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    code = ord(char)
    if 0xDC00 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02X}"
    if unicodedata.category(char)[0] in "CZ":
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


def _text(piece: str, scheme: Scheme) -> str:
    if scheme == "bytes":
        return _byte_level(piece)
    if scheme == "metaspace":
        byte = BYTE_PIECE.fullmatch(piece)
        return chr(0xDC00 + int(byte[1], 16)) if byte else piece.replace("▁", " ")
    return piece


def _byte_level(piece: str) -> str:
    if any(char not in _BYTE for char in piece):
        return piece
    return _from_bytes(bytes(_BYTE[char] for char in piece))


def _from_bytes(raw: bytes) -> str:
    """Whole characters as themselves, the bytes of partial ones as surrogates."""
    return raw.decode("utf8", errors="surrogateescape")


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level vocabularies use for the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    shifted = {chr(256 + n): b for n, b in enumerate(rest)}
    return {chr(b): b for b in printable} | shifted


_BYTE = _byte_alphabet()
_PRINTED = {" ": SPACE, "\\": "\\\\", SPACE: "\\u00b7"}
_NAMED = _PRINTED | {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_PLAIN = str.maketrans(_PRINTED)
_DECODERS: dict[Scheme, tuple[str, ...]] = {
    "bytes": ('"ByteLevel"',),
    "wordpiece": ('"WordPiece"',),
    "metaspace": ('"Metaspace"', "▁"),
}
