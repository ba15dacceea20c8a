"""The words and facts of the sample corpora, read from the text files of `lexicon/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

Pairs = list[tuple[str, str]]

_FOLDER = Path(__file__).with_name("lexicon")


def _lines(name: str) -> list[str]:
    """Return the lines of one lexicon file without comments and blanks."""
    lines = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _singular(entry: str) -> str:
    """Return the first form of an entry such as `mouse/mice`."""
    return entry.split("/")[0]


def _listed(line: str) -> tuple[str, list[str]]:
    """Split `key: a, b, c` into its key and its items."""
    key, _, rest = line.partition(": ")
    return key, rest.split(", ")


@cache
def tables() -> dict[str, list[dict[str, str]]]:
    """Return the fact tables: one record a country, animal or trade, without empty columns."""
    columns = {
        "country": ["country", "capital", "nationality", "language", "currency", "continent"],
        "animal": ["animal", "young", "sound", "home", "class"],
        "trade": ["trade", "tool", "place", "product"],
    }
    files = {"country": "countries", "animal": "animals", "trade": "trades"}
    return {name: [_record(columns[name], line) for line in _lines(files[name])] for name in files}


def _record(columns: list[str], line: str) -> dict[str, str]:
    """Return one line of a fact table as a record."""
    cells = zip(columns, line.split(), strict=True)
    return {column: _singular(cell) for column, cell in cells if cell != "-"}


@cache
def relations() -> dict[str, Pairs]:
    """Return the relations of `pairs.txt`: name -> (left, right) pairs."""
    return {
        name: [(pair.split()[0], pair.split()[1]) for pair in items]
        for name, items in map(_listed, _lines("pairs"))
    }


@cache
def topics() -> dict[str, dict[str, list[str]]]:
    """Return the topics: name -> things, people, places, verbs and qualities."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in _lines("topics"):
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), {})
        else:
            key, items = _listed(line)
            current[key] = [_singular(item) for item in items]
    return found


@cache
def words() -> dict[str, list[str]]:
    """Return the closed word lists: names, weekdays, numbers and words of opinion."""
    return dict(map(_listed, _lines("words") + _lines("opinions")))


@cache
def irregular_verbs() -> dict[str, tuple[str, str]]:
    """Return base -> (past, past participle) of the irregular verbs."""
    rows = (line.split() for line in _lines("irregular"))
    return {base: (past, participle) for base, past, participle in rows}


@cache
def irregular_plurals() -> dict[str, str]:
    """Return singular -> plural of the nouns written with both forms."""
    found = dict(line.split() for line in _lines("plurals"))
    for name in ("topics", "animals", "trades"):
        for entry in " ".join(_lines(name)).replace(",", " ").split():
            if "/" in entry:
                singular, plural = entry.split("/")
                found[singular] = plural
    return found


def facts() -> dict[str, Pairs]:
    """Return every relation the generator tells about: `country-capital` -> pairs, and so on."""
    found: dict[str, Pairs] = {}
    for name, records in tables().items():
        for column in [key for key in records[0] if key != name]:
            pairs = [(row[name], row[column]) for row in records if column in row]
            found[f"{name}-{column}"] = pairs
    return found | dict(relations()) | _inflections()


def _inflections() -> dict[str, Pairs]:
    """Return the relations between the forms of a word."""
    from .inflect import degree_form, plural, verb_form

    lists = topics().values()
    nouns = sorted({noun for topic in lists for noun in topic["things"] + topic["people"]})
    verbs = sorted({verb for topic in lists for verb in topic["verbs"]})
    degrees = words()["degrees"]
    return {
        "singular-plural": [(noun, plural(noun)) for noun in nouns],
        "verb-third": [(verb, verb_form(verb, "s")) for verb in verbs],
        "verb-past": [(verb, verb_form(verb, "ed")) for verb in verbs],
        "verb-gerund": [(verb, verb_form(verb, "ing")) for verb in verbs],
        "adjective-comparative": [(word, degree_form(word, "er")) for word in degrees],
        "adjective-superlative": [(word, degree_form(word, "est")) for word in degrees],
    }


@cache
def fact_words() -> frozenset[str]:
    """Return the words the fact tables and the relations pair up."""
    found = {word for pairs in relations().values() for pair in pairs for word in pair}
    for rows in tables().values():
        found.update(word for row in rows for word in row.values())
    return frozenset(found)


@cache
def vocabulary() -> frozenset[str]:
    """Return every word form the lexicon can put into a sentence, for the tokenizers."""
    from .inflect import plural, verb_form

    found = {word for pairs in facts().values() for pair in pairs for word in pair}
    for items in words().values():
        found.update(items)
    for topic in topics().values():
        found.update(word for items in topic.values() for word in items)
        found.update(verb_form(verb, form) for verb in topic["verbs"] for form in ("ed", "en"))
    counted = [row[key] for rows in tables().values() for row in rows for key in row]
    found.update(plural(word) for word in counted if word.islower())
    return frozenset(found)
