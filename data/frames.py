"""Sentence frames: lines with {fields} and (free|choices), compiled once and filled many times."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).with_name("frames")
_CHOICE = re.compile(r"\(([^()]*)\)")
_FIELD = re.compile(r"\{([^{}]*)\}")
_OPENING = re.compile(r'(?:^"?|[.?!] |[.?!]" ")[a-z]')

Pieces = tuple[tuple[bool, str], ...]


@dataclass(frozen=True)
class Frame:
    """One frame: parts that are each a tuple of alternatives, and the fields it may ask for."""

    parts: tuple[tuple[Pieces, ...], ...]
    fields: frozenset[str]

    def fill(self, scene: Mapping[str, str], rng: random.Random) -> str:
        """Return the sentence this frame gives for `scene`."""
        pieces = []
        for alternatives in self.parts:
            chosen = alternatives[int(rng.random() * len(alternatives))]
            pieces.extend(scene[text] if is_field else text for is_field, text in chosen)
        return _tidy("".join(pieces))


def _tidy(text: str) -> str:
    """Drop the blanks an empty choice leaves and write capitals where sentences open."""
    text = text.replace("  ", " ").replace(" ,", ",").replace(" .", ".").replace(" ?", "?")
    return _OPENING.sub(lambda match: match.group().upper(), text)


def _pieces(text: str) -> Pieces:
    """Split text into literals and fields, told apart by a flag."""
    pieces = enumerate(_FIELD.split(text))
    return tuple((index % 2 == 1, piece) for index, piece in pieces if piece)


def compile_frame(line: str) -> Frame:
    """Compile one line of a frame file."""
    pieces = enumerate(_CHOICE.split(line))
    parts = tuple(
        tuple(_pieces(option) for option in (piece.split("|") if index % 2 else [piece]))
        for index, piece in pieces
        if piece
    )
    fields = {re.split(r"\W", field.removeprefix("a "))[0] for field in _FIELD.findall(line)}
    return Frame(parts, frozenset(fields))


@cache
def frames(name: str) -> dict[str, list[Frame]]:
    """Return the frames of one file (`reference`, `story` or `sentiment`) by section."""
    found: dict[str, list[Frame]] = {}
    for line in (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            current.append(compile_frame(line))
    return found
