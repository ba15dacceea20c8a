"""Maps that were fitted on the spot, remembered by the content of all that decides them."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..cache import cache_folder
from ..errors import EmbspaceError, MapsError
from ..progress import Progress
from ..text.text import AnyText, Text
from ..version import __version__
from ..weights.settings import beside
from .fit import fit
from .maps import Maps
from .solve import Kind

if TYPE_CHECKING:
    from ..weights.model import Model

ENDING = ".safetensors"


def fitted(
    model: "Model",
    text: AnyText | None = None,
    *,
    kind: Kind = "mat",
    pairs: str = "final",
    parts: Literal["blocks", "submodules", "both"] = "blocks",
    ridge: float | None = None,
    rows: int | None = None,
    progress: Progress | None = None,
) -> tuple[Maps, bool]:
    """(maps of `fit` with these options, whether they were remembered from before).

    The key holds the hashes of the weights, of config and tokenizer, and of the sentences, every
    option and the version, so that nothing stale is ever found. A cache that cannot be written is
    no hindrance. Raises what `fit` raises.
    """
    text = Text.of(text, model)
    options = {"kind": kind, "pairs": pairs, "parts": parts, "ridge": ridge, "rows": rows}
    path = cache_folder("maps") / f"{_key(model, text, options)}{ENDING}"
    if path.is_file():
        try:
            return Maps.load(path, model), True
        except EmbspaceError:  # damaged: fit again
            with suppress(OSError):
                path.unlink()
    how: Any = options | {"progress": progress}
    maps = fit(model, text, **how)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        maps.save(path)
    except (EmbspaceError, OSError):  # a read-only or full cache
        pass
    return maps, False


def _key(model: "Model", text: Text, options: dict[str, Any]) -> str:
    taken = {name: value for name, value in vars(text).items() if name not in ("lines", "source")}
    said = {
        "weights": model.checkpoint.contents,
        "beside": beside(model.folder),
        "dtype": str(model.dtype),
        "run": asdict(model.run_settings),
        "text": taken | {"digest": text.digest},
        "options": options,
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:24]


def remembered() -> list[Path]:
    """The files of all maps in the cache, newest first."""
    folder = cache_folder("maps")
    found = folder.glob(f"*{ENDING}") if folder.is_dir() else ()
    return sorted(found, key=lambda path: -path.stat().st_mtime)


def named(names: Iterable[str]) -> list[Path]:
    """The files of the cache whose names begin so. Raises MapsError unless each is just one."""
    every, found = remembered(), []
    for name in names:
        mine = [path for path in every if name and path.name.startswith(name)]
        if len(mine) != 1:
            what = (
                f"{len(mine)} files in the cache begin" if mine else "no file in the cache begins"
            )
            raise MapsError(f"{what} with {name[:40]!r}: see `embspace maps`.")
        found += mine
    return list(dict.fromkeys(found))


def forget(paths: list[Path]) -> int:
    """Delete files of the cache; the bytes that were freed."""
    freed = 0
    for path in paths:
        size = path.stat().st_size
        path.unlink(missing_ok=True)
        freed += size
    return freed
