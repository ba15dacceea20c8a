"""The user's cache folder: certificates and unpacked checkpoints."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .errors import EmbspaceError


def cache_folder(kind: str) -> Path:
    """Folder of one kind of cached thing; `EMBSPACE_CACHE` moves it. Created when written to."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("EMBSPACE_CACHE")
    return (Path(chosen) if chosen else user_cache_path("embspace")) / kind


def write_atomically(path: Path, text: str, *, make_folder: bool = False) -> None:
    """Write a text file whole or not at all; links are followed, devices and pipes written to.

    `make_folder` creates the folder it lies in. Raises EmbspaceError, naming the file.
    """
    try:
        target = path.resolve()
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise EmbspaceError(f"{path} is a folder: give the name of a file to write.")
        if not target.parent.is_dir():
            raise EmbspaceError(f"{path} cannot be written: there is no folder {path.parent}.")
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf8")
        else:
            _replace(target, text)
    except (OSError, RuntimeError, ValueError) as error:  # no permission; links in a ring; a NUL
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise EmbspaceError(f"{path} cannot be written: {reason}.") from error


def _replace(target: Path, text: str) -> None:
    """Write under a temporary name in the same folder, then rename."""
    handle, name = tempfile.mkstemp(prefix=".embspace-", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf8") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any | None:
    """The content of a JSON file, or None where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError):
        return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
