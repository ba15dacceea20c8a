"""Grades of a model's heads as last measured, kept in the user's cache by what decides them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache import cache_folder, read_json, write_atomically
from ..errors import EmbspaceError
from ..notation import Circuit, Norm
from ..weights.settings import model_key
from .head_trust import GRADES, Grade, Trust

if TYPE_CHECKING:
    from ..weights.model import Model

VERSION = 2  # of the rule and of the file


@dataclass(frozen=True)
class Grades:
    """What each circuit was graded, on which text."""

    grades: dict[tuple[int, int, str], Grade]
    text: str
    text_hash: str
    n_texts: int

    def of(self, layer: int, head: int, circuit: Circuit) -> Grade | None:
        """The grade of one circuit, or None where it was not measured."""
        return self.grades.get((layer, head, circuit))

    def note(self) -> str:
        """One sentence that says where the grades are from."""
        return (
            f"trust: how far each reading agrees with what the head does, measured on "
            f"{self.n_texts} texts of {self.text} (hash {self.text_hash})."
        )


def remember(model: "Model", result: Trust) -> bool:
    """Keep the grades of a model; False where the cache cannot be written."""
    settings = result.settings
    data = {
        "version": VERSION,
        "model": model_key(model),
        **{name: settings[name] for name in ("norm", "text", "text_hash", "n_texts")},
        "grades": [[h.layer, h.head, h.circuit, h.grade] for h in result.heads],
    }
    path = _path(model_key(model), settings["norm"])
    try:
        write_atomically(path, json.dumps(data) + "\n", make_folder=True)
    except EmbspaceError:
        return False
    return True


def recall(model: "Model", norm: Norm = "raw") -> Grades | None:
    """The grades last measured for this model; None where there are none, or a damaged file."""
    key = model_key(model)
    data: Any = read_json(_path(key, norm))
    try:
        if data["version"] != VERSION or (data["model"], data["norm"]) != (key, norm):
            return None
        grades = {(x, h, c): grade for x, h, c, grade in data["grades"]}
        found = Grades(grades, str(data["text"]), str(data["text_hash"]), int(data["n_texts"]))
    except (TypeError, KeyError, ValueError):
        return None
    return found if set(grades.values()) <= set(GRADES) else None


def _path(key: str, norm: str) -> Path:
    return cache_folder("trust") / f"{key}-{norm}.json"
