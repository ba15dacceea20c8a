"""What maps the cache holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MapsError
from ..results import Result
from .maps import Maps
from .remembered import remembered


@dataclass(frozen=True)
class KeptMaps(Result):
    """Fitted maps in the cache: file, model, kind, pairs, rows, text and size in bytes."""

    files: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """The list of files."""
        return {"maps": list(self.files)}

    def rows(self) -> list[dict[str, Any]]:
        """One row a file."""
        return [dict(file) for file in self.files]


def kept_maps() -> KeptMaps:
    """All maps in the cache, newest first; damaged files are listed as such."""
    return KeptMaps(tuple(_of(path) for path in remembered()))


def _of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size}
    try:
        maps = Maps.load(path)
    except MapsError:
        return found | {
            "model": "(damaged, or of another version: fitted again when needed)",
            "kind": "",
            "pairs": 0,
            "rows": 0,
            "text": "",
        }
    about = maps.about
    return found | {
        "model": str(about.get("model")),
        "kind": maps.kind,
        "pairs": len(maps.pairs),
        "rows": about.get("rows"),
        "text": str(about.get("text")),
    }
