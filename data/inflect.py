"""English inflection by rule, with the exceptions the lexicon lists."""

from __future__ import annotations

import re
from functools import cache

from .lexicon import irregular_plurals, irregular_verbs

_IRREGULAR_DEGREES = {
    "good": ("better", "best"),
    "bad": ("worse", "worst"),
    "far": ("farther", "farthest"),
}
_LATE_STRESS = {"debug", "regret", "prefer", "admit", "begin"}
_SOUNDS_LIKE_YOU = re.compile(r"(uni(?!n)|use|eur|one\b|ukr|uga|uru|ewe|uten)", re.I)
_SILENT_H = re.compile(r"(hour|hono|honest|heir)", re.I)


def article(word: str) -> str:
    """Return `a` or `an`, as the first sound of `word` asks."""
    if _SILENT_H.match(word):
        return "an"
    return "an" if word[0] in "aeiouAEIOU" and not _SOUNDS_LIKE_YOU.match(word) else "a"


@cache
def plural(noun: str) -> str:
    """Return the plural of `noun`."""
    irregular = irregular_plurals().get(noun)
    if irregular:
        return irregular
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else noun + "s"


def _doubles(word: str) -> bool:
    """Say whether the last consonant of `word` is written twice before a vowel."""
    one_syllable = len(re.findall(r"[aeiouy]+", word)) == 1
    closed = re.search(r"[^aeiou][aeiou][^aeiouwxy]$", word) is not None
    return (one_syllable and closed) or word in _LATE_STRESS


def _with_vowel(stem: str, ending: str) -> str:
    """Join `ending`, which starts with a vowel, to `stem` by the spelling rules."""
    if stem.endswith("e") and not (ending == "ing" and stem.endswith(("ee", "oe", "ye"))):
        return stem[:-1] + ending
    if re.search(r"[^aeiou]y$", stem) and ending != "ing":
        return stem[:-1] + "i" + ending
    return stem + stem[-1] + ending if _doubles(stem) else stem + ending


@cache
def verb_form(verb: str, form: str) -> str:
    """Return `verb` in one of the forms `s`, `ed` (past), `en` (past participle), `ing`."""
    past, participle = irregular_verbs().get(verb, (None, None))
    if form == "s":
        return "has" if verb == "have" else _third_person(verb)
    if form == "ing":
        return _with_vowel(verb, "ing")
    return (past if form == "ed" else participle) or _with_vowel(verb, "ed")


def _third_person(verb: str) -> str:
    """Return the third person singular of `verb`."""
    if re.search(r"(s|x|z|ch|sh|o)$", verb):
        return verb + "es"
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + "s"


@cache
def degree_form(adjective: str, form: str) -> str:
    """Return the comparative (`er`) or superlative (`est`) of a short `adjective`."""
    if adjective in _IRREGULAR_DEGREES:
        return _IRREGULAR_DEGREES[adjective][form == "est"]
    return _with_vowel(adjective, form)
