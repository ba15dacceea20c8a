"""JSON files of unknown origin, and headers of safetensors files, read without trusting them."""

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..messages import first_line

LONGEST_HEADER = 100_000_000  # bytes, the limit of the format


def path_of(name: str) -> Path:
    """A name as a path, `~` resolved. Raises ModelError where the system can look up no such path.

    Too long, a NUL inside, nobody's home: none of them is a path or the name of a model.
    """
    try:
        path = Path(name).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
        return path
    except (OSError, ValueError, RuntimeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or first_line(error)
        shown = name if len(name) <= 80 else name[:79] + "…"
        raise ModelError(f"{shown!r} cannot be opened: {reason}.") from error


def read_json_file(path: Path, what: str = "valid JSON") -> Any:
    """The content of a JSON file. Raises ModelError for anything that is none."""
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(f"{path} is not {what} ({first_line(error)}).") from error


def check_safetensors(path: Path) -> None:
    """A short or damaged file is refused by name, before a library fails somewhere inside it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else None
        if length is None or length + 8 > size or length > LONGEST_HEADER:
            raise ModelError(f"{path.name} in {path.parent} is cut short or not safetensors.")
        missing = 8 + length + _data_length(path, file.read(length)) - size
    if missing > 0:
        raise ModelError(
            f"{path.name} in {path.parent} is {missing} bytes short: "
            "the download is incomplete; fetch it again."
        )


def _data_length(path: Path, header: bytes) -> int:
    """Where the last tensor ends, counted from the header's end."""
    try:
        entries = [v for k, v in json.loads(header).items() if k != "__metadata__"]
        offsets = [(start, end) for start, end in (v["data_offsets"] for v in entries)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path.name} has a damaged safetensors header.") from error
    if any(type(at) is not int or at < 0 for pair in offsets for at in pair):
        raise ModelError(f"{path.name} has a damaged safetensors header.")
    return max((end for _, end in offsets), default=0)
