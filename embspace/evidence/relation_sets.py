"""Relation sets: pairs of words that stand in one relation, ours or from a file."""

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..checking import is_unicode, positive
from ..errors import EmbspaceError, VocabularyError
from ..weights.json_files import path_of
from ..weights.vocabulary import VocabularySpace

MOST = 20_000  # pairs of one relation
MOST_BYTES = 1 << 24  # of a file of pairs
KINDS = (".tsv", ".csv", ".json")


@dataclass(frozen=True)
class RelationSet:
    """Pairs of words that stand in one relation, such as (France, Paris).

    name: what it is called in results. k: a target among the first k of its source's row counts as
    found; None: 10, or 25 for vocabularies of 128,000 tokens and more.
    """

    name: str
    pairs: tuple[tuple[str, str], ...]
    k: int | None = None

    def __post_init__(self) -> None:
        for pair in self.pairs:
            if len(pair) != 2 or not all(isinstance(x, str) and is_unicode(x) for x in pair):
                raise EmbspaceError(f"{self.name}: expected pairs of words, got {str(pair)[:80]}.")
        if len(self.pairs) > MOST:
            raise EmbspaceError(
                f"{self.name} has {len(self.pairs):,} pairs: give at most {MOST:,} of them."
            )
        if self.k is not None:
            positive(self.k, f"k of {self.name}")

    @property
    def distinct(self) -> tuple[tuple[str, str], ...]:
        """The pairs, each once."""
        return tuple(dict.fromkeys(self.pairs))


@dataclass(frozen=True)
class TokenPairs:
    """A relation set as a model's tokens: ids of sources and targets, and the words they are."""

    name: str
    words: tuple[tuple[str, str], ...]
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    k: int
    n_split: int  # pairs left out because a word is not one token

    def __len__(self) -> int:
        return len(self.words)


def bundled_relations() -> tuple[RelationSet, ...]:
    """The relation sets that ship with the package, by name."""
    folder = files("embspace_data") / "relations"
    found = sorted(
        (x for x in folder.iterdir() if x.name.endswith(".tsv")), key=lambda one: one.name
    )
    return tuple(
        _of_text(one.name, one.name.removesuffix(".tsv"), one.read_text(encoding="utf8"))
        for one in found
    )


def read_relations(file: str | Path) -> tuple[RelationSet, ...]:
    """The relation sets of a file: one of a .tsv or .csv, one or several of a .json.

    Args:
        file: .tsv or .csv: a source and a target a line, lines that begin with # aside (`# k: 1`
            sets k). .json: {NAME: [[source, target], …]}, {NAME: {"pairs": […], "k": 1}}, or a
            list of pairs.

    Returns:
        The sets; a .tsv or .csv is named after the file.

    Raises:
        EmbspaceError: the file is missing, too large, or holds anything but pairs of words.
    """
    path = path_of(str(file))
    if path.suffix.lower() not in KINDS:
        raise EmbspaceError(f"{path} cannot hold word pairs: give a .tsv, .csv or .json file.")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise EmbspaceError(
                f"{path} is larger than {MOST_BYTES >> 20} MiB: give at most {MOST:,} word pairs."
            )
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise EmbspaceError(f"{path} is no UTF-8 text: give word pairs as UTF-8.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EmbspaceError(f"{path} cannot be read: {reason}.") from error
    if path.suffix.lower() == ".json":
        return _of_json(path, text)
    return (_of_text(str(path), path.stem, text, csv_file=path.suffix.lower() == ".csv"),)


def _of_text(where: str, name: str, text: str, *, csv_file: bool = False) -> RelationSet:
    pairs, k = [], None
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter="," if csv_file else "\t", quoting=0))
    except csv.Error as error:
        raise EmbspaceError(f"{where} cannot be read as a table of word pairs: {error}.") from error
    for n, cells in enumerate(rows, 1):
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if cells[0].startswith("#") and not cells[0][1:2].isdecimal():  # #17 names a token
            key, _, value = cells[0][1:].partition(":")
            k = int(value) if key.strip() == "k" and value.strip().isdecimal() else k
            continue
        if len(cells) != 2 or not all(cells):
            kind = "comma" if csv_file else "tab"
            raise EmbspaceError(
                f"{where}, line {n}: expected a source and a target with a {kind} between, got "
                f"{len([c for c in cells if c])} words."
            )
        pairs.append((cells[0], cells[1]))
    if not pairs:
        raise EmbspaceError(f"{where} holds no word pairs: give a source and a target a line.")
    return RelationSet(name, tuple(pairs), k)


def _of_json(path: Path, text: str) -> tuple[RelationSet, ...]:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EmbspaceError(f"{path} is no JSON: {str(error)[:120]}.") from error
    named = {path.stem: data} if isinstance(data, list) else data
    if not isinstance(named, dict) or not named:
        raise EmbspaceError(f"{path}: expected {{name: [[source, target], …]}} or a list of pairs.")
    found = []
    for name, given in named.items():
        pairs, k = (
            (given.get("pairs"), given.get("k")) if isinstance(given, dict) else (given, None)
        )
        if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs) or not pairs:
            raise EmbspaceError(f"{path}, {name[:80]}: expected a list of [source, target] words.")
        words = tuple((a.strip(), b.strip()) for a, b in pairs)
        found.append(RelationSet(name, words, None if k is None else positive(k, f"{name}: k")))
    return tuple(found)


def _is_pair(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(word, str) and word.strip() for word in pair)
    )


def token_pairs(space: VocabularySpace, relation: RelationSet) -> TokenPairs:
    """A relation's pairs of which both words are one token of a vocabulary."""
    starts = marks_word_starts(space)
    words = {word for pair in relation.pairs for word in pair}
    ids = {word: one_token(space, word, starts) for word in words}
    kept = [(pair, ids[pair[0]], ids[pair[1]]) for pair in relation.distinct]
    kept = [(pair, a, b) for pair, a, b in kept if a is not None and b is not None]
    k = relation.k or (25 if len(space) >= 128_000 else 10)
    return TokenPairs(
        relation.name,
        tuple(pair for pair, _, _ in kept),
        tuple(a for _, a, _ in kept if a is not None),
        tuple(b for _, _, b in kept if b is not None),
        min(k, len(space)),
        len(relation.distinct) - len(kept),
    )


def one_token(space: VocabularySpace, word: str, starts: bool) -> int | None:
    """The id of a word that is one token; `starts`: of the token that begins a word."""
    try:
        found = [lookup.ids[0] for lookup in space.find(word) if lookup.single]
    except VocabularyError:
        return None
    if word.startswith("#") and word[1:].isdecimal():
        return found[0]
    if starts:
        found = [i for i in found if (space.texts[i] or "").startswith(" ")]
    return found[0] if found else None


def marks_word_starts(space: VocabularySpace) -> bool:
    """Whether tokens that begin a word hold the space before it."""
    return sum(1 for text in space.texts if text and text.startswith(" ")) > len(space) // 20


def names_of(relations: Iterable[RelationSet]) -> list[str]:
    """Names of relation sets. Raises EmbspaceError where two have one name."""
    names = [relation.name for relation in relations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise EmbspaceError(f"two relations are called {twice[0]!r}: rename one of them.")
    return names
