"""Maps by name, for a reader who has none: fitted on the spot, or read from a file."""

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..cache import cache_folder, read_json, write_atomically
from ..errors import EmbspaceError, MapsError
from ..progress import Progress
from ..text.text import AnyText, Text
from ..version import __version__
from ..weights.aliases import bundled
from ..weights.json_files import path_of
from .imported import read_maps
from .maps import Maps, too_few
from .refine import refine
from .remembered import ENDING, fitted

if TYPE_CHECKING:
    from ..weights.model import Model

IDENTITY = "id"
FITTED = ("mat", "affine", "ridge", "refined")  # what can be fitted here, by name
Asked = str | Path | Maps | None


def named_maps(
    model: "Model",
    asked: "Asked | Iterable[Asked]",
    text: AnyText | None = None,
    *,
    layers: Sequence[int] | None = None,
    prompts: Sequence[str | None] = (),
    rows: int | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Maps | None], tuple[str, ...]]:
    """(name -> maps, None for the identity; sentences about what was fitted now).

    asked: "id", a kind to fit, a file, Maps, or several of these; None means "id", and "mat" where
    there is a text to fit it on at once: a given one, or for a sample our own.
    layers: the ones that are needed, for refining takes its time for each (all). prompts: what
    is read through them; it is said where the text to fit holds one. rows: fit so many lines
    at most. Raises MapsError and what `fit` raises.
    """
    read: Text | None = None
    found: dict[str, Maps | None] = {}
    several, notes = _by_default(model, text) if asked is None else (_several(asked), [])
    for one in several:
        if isinstance(one, str) and one == IDENTITY:
            found[IDENTITY] = None
        elif isinstance(one, str) and one in FITTED:
            read = read or Text.of(text, model)
            how = {"layers": layers, "rows": rows, "progress": progress}
            found[one], note = fitted_now(model, one, read, **how)
            notes.append(note)
        elif one is None:
            raise MapsError(f"name each lens: id, {', '.join(FITTED)}, or a file of maps.")
        else:
            maps = one.require(model) if isinstance(one, Maps) else _from_file(one, model)
            found[_name(one, maps, found)] = maps
    fits = [maps for maps in found.values() if maps is not None]
    for maps in fits:
        notes += too_few(int(maps.about.get("rows") or maps.d), maps.d)
    if read and any(p in line for p in prompts if p for line in read.lines):
        notes.append(f"The prompt stands in {read.source}: maps may have been fitted on it.")
    if not found:
        raise MapsError(f"no lens was given: use id, {', '.join(FITTED)}, or a file of maps.")
    return found, tuple(dict.fromkeys(notes))


def _by_default(model: "Model", text: Any) -> tuple[list[Any], list[str]]:
    """Lenses that need nothing from elsewhere, and a sentence on how to have more."""
    if text is not None or bundled(model.name) is not None:
        return [IDENTITY, "mat"], []
    fit = f"embspace fit {quote(model.name)} --text"
    itself = model.family.causal and model.has_head
    sampled = f", or {fit} self (sentences sampled from the model itself)" if itself else ""
    return [IDENTITY], [
        f"The logit lens alone, as no maps of this model were given. To fit some: {fit} FILE"
        f"{sampled}."
    ]


def fitted_now(
    model: "Model",
    kind: str,
    text: Text,
    *,
    layers: Sequence[int] | None = None,
    rows: int | None = None,
    progress: Progress | None = None,
) -> tuple[Maps, str]:
    """Maps of a kind fitted on a text, remembered from before where they were; and a sentence.

    layers: to refine, where that is the kind.
    """
    start = time.monotonic()
    base: Any = "mat" if kind == "refined" else kind
    maps, known = fitted(model, text, kind=base, rows=rows, progress=progress)
    maps = _timed(maps, None if known else time.monotonic() - start)
    if kind == "refined":
        start, before = time.monotonic(), maps.about["seconds"]
        maps, known = _refined(model, maps, text, layers, progress)
        took = time.monotonic() - start + before if not known and before is not None else None
        maps = _timed(maps, took)
    seconds = maps.about["seconds"]
    how = "remembered from an earlier run"
    if not known:
        how = "fitted now" + ("" if seconds is None else f" in {seconds:.1f} s")
    return maps, f"{kind}: {how}, on {maps.about['rows']} rows of {text.source}."


def _timed(maps: Maps, seconds: float | None) -> Maps:
    """The same maps with the seconds of their fit in the record: measured now, or noted before.

    Kept beside the maps and not in their file, of which the same seed gives the same bytes.
    """
    path = cache_folder("seconds") / f"{_digest(maps)}.json"
    if seconds is None:
        noted = read_json(path)
        seconds = float(noted) if isinstance(noted, int | float) else None
    else:
        with suppress(EmbspaceError):  # a read-only cache
            write_atomically(path, json.dumps(seconds), make_folder=True)
    return replace(maps, about={**maps.about, "seconds": seconds})


def _digest(maps: Maps) -> str:
    said = {k: v for k, v in maps.about.items() if k != "seconds"} | {"by": __version__}
    return hashlib.sha256(json.dumps(said, default=str, sort_keys=True).encode()).hexdigest()[:24]


def _refined(
    model: "Model",
    maps: Maps,
    text: Text,
    layers: Sequence[int] | None,
    progress: Progress | None,
) -> tuple[Maps, bool]:
    """The refined maps, remembered by what they were refined from, and of which layers."""
    whole = cache_folder("maps") / f"{_digest(maps)}-refined{ENDING}"
    path = whole if layers is None else whole.with_stem(f"{whole.stem}-{_marked(layers)}")
    for known in dict.fromkeys((whole, path)):
        if known.is_file():
            try:
                return Maps.load(known, model), True
            except EmbspaceError:  # damaged: refine again
                with suppress(OSError):
                    known.unlink()
    found = refine(model, maps, text, layers=layers, progress=progress)
    with suppress(EmbspaceError, OSError):  # a read-only or full cache
        path.parent.mkdir(parents=True, exist_ok=True)
        found.save(path)
    return found, False


def _marked(layers: Sequence[int]) -> str:
    """A few characters that stand for some layers: their numbers could be longer than a name."""
    return hashlib.sha256(json.dumps(sorted(set(layers))).encode()).hexdigest()[:8]


def _several(asked: Any) -> list[Any]:
    return [asked] if isinstance(asked, str | Path | Maps) else list(asked)


def _from_file(path: str | Path, model: "Model") -> Maps:
    if not path_of(str(path)).exists() and len(Path(path).parts) == 1:
        raise MapsError(
            f"there is no lens {str(path)[:80]!r}: use id, {', '.join(FITTED)}, or a file of maps."
        )
    return read_maps(path, model)


def _name(given: Any, maps: Maps, taken: dict[str, Any]) -> str:
    """The kind; with the file's name where that kind is there already."""
    if maps.kind not in taken:
        return maps.kind
    name = f"{maps.kind} {Path(given).name if isinstance(given, str | Path) else ''}".strip()
    n = 2
    while name in taken:
        name, n = f"{maps.kind} {n}", n + 1
    return name
