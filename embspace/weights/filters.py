"""Filters of tokens by their text: letters, words, those of a file, a pattern."""

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from ..checking import is_unicode
from ..errors import VocabularyError
from ..messages import first_line
from .labels import scheme_of


class TokenFilters:
    """What may be asked of the tokens of a vocabulary, found once for each choice of filters."""

    def __init__(
        self, name: str, tokenizer: Any | None, texts: list[str | None], special: set[int]
    ) -> None:
        self.name, self.tokenizer, self.texts, self.special = name, tokenizer, texts, special
        self._masks: dict[tuple[str, ...], Tensor] = {}  # a survey asks for the same one often

    def mask(self, names: tuple[str, ...]) -> Bool[Tensor, "V"]:
        """Ids that pass every filter.

        `ascii`, `alnum` (ASCII letters and digits), `unicode-alnum` (of any script), `words` (whole
        words: a word start followed by three or more letters), `text` (no special tokens),
        `file:PATH` (tokens of a text file, whatever their case and word start), `file-exact:PATH`
        (those tokens alone), `re:PATTERN` (searched in the token's text). `ascii`, `alnum` and
        `file` are the papers' code's rules. All leave out special tokens and partial characters.
        Raises VocabularyError for an unknown filter, a bad pattern, or when nothing passes.
        """
        if names not in self._masks or any(name.startswith("file") for name in names):
            self._masks[names] = self._mask(names)
        return self._masks[names]

    def _mask(self, names: tuple[str, ...]) -> Bool[Tensor, "V"]:
        if self.tokenizer is None:
            raise VocabularyError(f"{self.name} has no tokenizer, so tokens cannot be filtered.")
        tests = [self._test(name) for name in names]
        keep = [
            text is not None and i not in self.special and all(t(i, text) for t in tests)
            for i, text in enumerate(self.texts)
        ]
        if not any(keep):
            raise VocabularyError(f"no token of {self.name} passes {' and '.join(names)}.")
        return torch.tensor(keep)

    def _test(self, name: str) -> Callable[[int, str], bool]:
        kind, _, argument = name.partition(":")
        if kind == "file-exact" and argument:
            ids = self._ids_in_file(Path(argument))
            return lambda i, text: i in ids
        if kind == "file" and argument:
            words = {word_of(self.texts[i] or "") for i in self._ids_in_file(Path(argument))}
            return lambda i, text: word_of(text) in words
        if kind == "re" and argument:
            try:
                pattern = re.compile(argument)
            except (re.error, OverflowError, RecursionError) as error:
                shown, reason = argument[:80], first_line(error)
                raise VocabularyError(f"{shown!r} is no regular expression: {reason}.") from error
            return lambda i, text: bool(pattern.search(text))
        if name == "words":
            return lambda i, text: self.is_word(text)
        if name in _TESTS:
            return lambda i, text: _TESTS[name](text)
        raise VocabularyError(
            f"unknown filter {name[:80]!r}: use ascii, alnum, unicode-alnum, words, text, "
            "file:PATH, file-exact:PATH or re:PATTERN."
        )

    def is_word(self, text: str) -> bool:
        """Whether a token's text begins a word and is three or more letters."""
        marked = self._scheme in ("bytes", "metaspace")
        word = text[1:] if marked and text.startswith(" ") else text
        starts = text.startswith(" ") if marked else not text.startswith("##")
        return starts and len(word) >= 3 and word.isalpha()

    @cached_property
    def _scheme(self) -> str:
        return scheme_of(self.tokenizer)

    def _ids_in_file(self, path: Path) -> set[int]:
        try:
            text = path.read_text(encoding="utf8")
        except (OSError, ValueError) as error:  # no UTF-8; a name with a NUL
            shown, reason = str(path)[:200], first_line(error)
            raise VocabularyError(f"the filter file {shown!r} cannot be read: {reason}.") from error
        ids: set[int] = set()
        for line in text.splitlines():
            ids.update(ids_of(self.tokenizer, line))
        return ids


def ids_of(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text without special tokens."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def filter_names(filters: str | Iterable[str]) -> tuple[str, ...]:
    """The names of filters, given as one or several. Raises VocabularyError for anything else."""
    names = (filters,) if isinstance(filters, str) else filters
    names = tuple(names) if isinstance(names, Iterable) else (names,)
    for name in names:
        if not isinstance(name, str):
            raise VocabularyError(f"a filter is named by text, not by {str(name)[:80]!r}.")
    return names


def word_of(text: str) -> str:
    """A token's text without case, surrounding space and `##`, as the papers' code compares it."""
    return _bare(text).lower() or text


def _bare(text: str) -> str:
    """Without surrounding space and the mark of a word's inside."""
    return text.strip().removeprefix("##")


def _printable_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable() and bool(text.strip())


_TESTS: dict[str, Callable[[str], bool]] = {
    "ascii": _printable_ascii,
    "alnum": lambda text: text.isascii() and _bare(text).isalnum(),
    "unicode-alnum": lambda text: _bare(text).isalnum(),
    "text": is_unicode,
}
