"""The writer: sentences, passages and labelled reviews, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

from . import STYLES, lexicon
from .frames import Frame, frames
from .inflect import article, degree_form, plural, verb_form

LABELS = ("negative", "positive")
Item = TypeVar("Item")

# How often a passage is about each kind of scene; "pairs" stands for every relation of pairs.txt.
_KINDS = {
    "topic": 40, "country": 12, "animal": 8, "trade": 8, "pairs": 18, "forms": 8, "opinion": 6,
}  # fmt: skip
_REVIEW_SHARE = 0.06
_FORMS = ("plural", "verb", "degree")
_FRESH = ("good", "good2", "bad", "bad2", "part", "part2", "loved", "hated")
_POOLS = {
    "weekday": "weekdays", "month": "months", "season": "seasons", "number": "numbers",
    "year": "years", "relative": "relatives", "feeling": "feelings", "colour": "colours",
    "manner": "manners", "time": "times", "degree": "degrees",
}  # fmt: skip
_TOPIC_FIELDS = {
    "thing": "things", "person": "people", "place": "places", "verb": "verbs",
    "quality": "qualities",
}  # fmt: skip
_PRONOUNS = {
    "he": ("he", "she"), "his": ("his", "her"), "him": ("him", "her"),
    "himself": ("himself", "herself"),
}  # fmt: skip


class Scene(dict[str, str]):
    """The words one passage speaks of: fixed fields, and any other word drawn when first asked."""

    def __init__(self, rng: random.Random, record: dict[str, str], topic: dict[str, list[str]]):
        super().__init__(record)
        self._rng, self._topic = rng, topic

    def __missing__(self, key: str) -> str:
        """Find the word for a field such as `thing2`, `verb+ed`, `a person`."""
        if key.startswith("a "):
            word = self[key[2:]]
            return f"{article(word)} {word}"
        base, _, form = key.partition("+")
        word = self._inflected(base, form) if form else self._drawn(base)
        self[key] = word
        return word

    def _inflected(self, base: str, form: str) -> str:
        """Return the word of `base` in another form."""
        word = self[base]
        if form in ("er", "est"):
            return degree_form(word, form)
        return verb_form(word, form) if base.startswith("verb") else plural(word)

    def _drawn(self, key: str) -> str:
        """Draw a word for a field, other than the word its twin (`thing` for `thing2`) has."""
        base = key.rstrip("23")
        if base in _PRONOUNS:
            return _PRONOUNS[base][self["name"] in lexicon.words()["women"]]
        pool = self._pool(base)
        word = pool[int(self._rng.random() * len(pool))]
        return word if word != self.get(base) or base == key else self._drawn(key)

    def _pool(self, base: str) -> list[str]:
        """Return the words a field may be drawn from."""
        if base == "name":
            return lexicon.words()["men" if self._rng.random() < 0.5 else "women"]
        if base in _TOPIC_FIELDS:
            return self._topic[_TOPIC_FIELDS[base]]
        if base in lexicon.tables()["country"][0]:
            return [row[base] for row in lexicon.tables()["country"]]
        return lexicon.words()[_POOLS.get(base, base)]


class Writer:
    """Writes passages in one style, or in both; equal seeds write equal text."""

    def __init__(self, style: str | None = None, seed: int | str = 0):
        if style not in (None, *STYLES):
            raise ValueError(f"style is {style!r}; expected one of {', '.join(STYLES)}")
        self._styles = STYLES if style is None else (style,)
        self._rng = random.Random(f"{style}/{seed}")
        self._topics = list(lexicon.topics().values())

    def _pick(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return items[int(self._rng.random() * len(items))]

    def _scene(self, kind: str) -> tuple[str, Scene]:
        """Return a section of the frame files and a scene for it."""
        section, record = kind, {}
        if kind in lexicon.tables():
            record = self._two(lexicon.tables()[kind])
        elif kind == "pairs":
            section = self._pick(list(lexicon.relations()))
            pairs = lexicon.relations()[section]
            record = self._two([{"left": left, "right": right} for left, right in pairs])
        elif kind == "forms":
            section = self._pick(_FORMS)
        return section, Scene(self._rng, record, self._pick(self._topics))

    def _two(self, records: list[dict[str, str]]) -> dict[str, str]:
        """Return one record, and a second one under the same names with a 2."""
        first, second = self._rng.sample(records, 2)
        return first | {f"{key}2": word for key, word in second.items()}

    def passage(self, n_sentences: int) -> list[str]:
        """Write sentences on one scene: its facts, its topic, its people."""
        kind = self._rng.choices(list(_KINDS), _KINDS.values())[0]
        section, scene = self._scene(kind)
        pool = frames(self._pick(self._styles))[section]
        usable = [frame for frame in pool if _fits(frame, kind, scene)]
        chosen = self._rng.sample(usable, min(n_sentences, len(usable)))
        return [frame.fill(scene, self._rng) for frame in chosen]

    def sentences(self) -> Iterator[str]:
        """Write single sentences without end, each on a scene of its own."""
        while True:
            yield self.passage(1)[0]

    def passages(self) -> Iterator[str]:
        """Write passages of one to five sentences, and now and then a review, without end."""
        while True:
            if self._rng.random() < _REVIEW_SHARE:
                yield self.review()[0]
            else:
                yield " ".join(self.passage(1 + int(self._rng.random() * 5)))

    def review(self) -> tuple[str, str]:
        """Write a film review of three to six sentences, with its label."""
        label = self._pick(LABELS)
        side, other = ("good", "bad") if label == "positive" else ("bad", "good")
        scene = Scene(self._rng, {}, self._pick(self._topics))
        weights = {side: 70, "neutral": 22, other: 8}
        drawn = self._rng.choices(
            list(weights), weights.values(), k=3 + int(self._rng.random() * 4)
        )
        # The side of the label always has more lines than the other side.
        sides = drawn if drawn.count(side) > drawn.count(other) else [side] * len(drawn)
        lines = {name: self._shuffled(frames("sentiment")[name]) for name in weights}
        return " ".join(self._opinion(scene, lines[name].pop()) for name in sides), label

    def _shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Return the items in another order."""
        return self._rng.sample(items, len(items))

    def _opinion(self, scene: Scene, frame: Frame) -> str:
        """Write one line of a review with fresh words of opinion."""
        for key in _FRESH:
            scene.pop(key, None)
        return frame.fill(scene, self._rng)


def _fits(frame: Frame, kind: str, scene: Scene) -> bool:
    """Say whether the scene has a word for every column of its table that the frame asks for."""
    columns = lexicon.tables()[kind][0] if kind in lexicon.tables() else ()
    return all(field in scene for field in frame.fields if field.rstrip("2") in columns)


def sentences(style: str, n: int, seed: int = 0) -> list[str]:
    """Return `n` different sentences in one style."""
    found: dict[str, None] = {}
    for sentence in Writer(style, seed).sentences():
        found.setdefault(sentence)
        if len(found) >= n:
            break
    return list(found)[:n]


def sentiment(split: str, n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `n` different (text, label) film reviews; the splits share no text by their seeds."""
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; expected train or test")
    writer = Writer(seed=f"sentiment/{split}/{seed}")
    found: dict[str, str] = {}
    while len(found) < n:
        text, label = writer.review()
        found.setdefault(text, label)
    return list(found.items())
