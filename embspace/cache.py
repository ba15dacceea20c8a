"""The user's cache folder: certificates and unpacked checkpoints."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def cache_folder(kind: str) -> Path:
    """Folder of one kind of cached thing; `EMBSPACE_CACHE` moves it. Created when written to."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("EMBSPACE_CACHE")
    return (Path(chosen) if chosen else user_cache_path("embspace")) / kind


def write_atomically(path: Path, text: str) -> None:
    """Write a text file under a temporary name beside it, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf8") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any | None:
    """The content of a JSON file, or None where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
