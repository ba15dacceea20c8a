"""Maps that were fitted on the spot, remembered by the content of all that decides them."""

import hashlib
import inspect
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache import cache_folder
from ..checking import known as check_known
from ..errors import EmbspaceError, MapsError
from ..text.corpus import Corpus, default_corpus, read_corpus
from ..version import __version__
from ..weights.settings import beside
from .fit import Progress, fit
from .maps import Maps

if TYPE_CHECKING:
    from ..weights.model import Model

ENDING = ".safetensors"
DEFAULTS = {
    name: one.default
    for name, one in inspect.signature(fit).parameters.items()
    if one.kind is one.KEYWORD_ONLY and name not in ("column", "progress")
}
FIT_OPTIONS = tuple(DEFAULTS)


def fitted(
    model: "Model",
    text: str | Path | Corpus | list[str] | None = None,
    *,
    column: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Maps, bool]:
    """(maps of `fit` with these options, whether they were remembered from before).

    The key holds the hashes of the weights, of config and tokenizer, and of the sentences, every
    option and the version, so that nothing stale is ever found. A cache that cannot be written is
    no hindrance. Raises what `fit` raises, and TypeError for an option that it does not take.
    """
    check_known(options, FIT_OPTIONS, "fit")
    corpus = default_corpus(model) if text is None else read_corpus(text, column=column)
    path = cache_folder("maps") / f"{_key(model, corpus, options)}{ENDING}"
    if path.is_file():
        try:
            return Maps.load(path, model), True
        except EmbspaceError:  # damaged: fit again
            with suppress(OSError):
                path.unlink()
    maps = fit(model, corpus, progress=progress, **options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        maps.save(path)
    except (EmbspaceError, OSError):  # a read-only or full cache
        pass
    return maps, False


def _key(model: "Model", corpus: Corpus, options: dict[str, Any]) -> str:
    said = {
        "weights": model.checkpoint.contents,
        "beside": beside(model.folder),
        "dtype": str(model.dtype),
        "text": corpus.digest,
        "options": _told(options),
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(said, default=_plain).encode()).hexdigest()[:24]


def _told(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not the default, so that saying a default changes no key."""
    said = {n: options[n] for n in sorted(options)}
    return {n: v for n, v in said.items() if type(v) is not type(DEFAULTS[n]) or v != DEFAULTS[n]}


def _plain(value: Any) -> Any:
    """Ranges and tuples as lists."""
    return list(value)


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
