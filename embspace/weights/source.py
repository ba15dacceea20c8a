"""Where a model's files lie: a folder, a .gguf file, a bundled sample, an alias or a Hub name."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ..errors import ModelError
from .aliases import ALIASES, bundled, bundled_names
from .gguf import unpacked
from .hub import HubFolder
from .json_files import path_of


@dataclass(frozen=True)
class Source:
    """The folder that weights are read from; for unpacked files, a note and their own dtype.

    fetch_weights: brings the weights where they are not there yet; has_revisions: of the Hub.
    """

    folder: Path
    notes: tuple[str, ...] = ()
    stored_as: str | None = None
    fetch_weights: Callable[[], None] = lambda: None
    has_revisions: bool = False


def find_source(name: str, revision: str | None = None) -> Source:
    """Where a name leads: a folder, a .gguf file, a bundled sample, an alias, or the Hub.

    Raises ModelError where it leads nowhere.
    """
    path = path_of(name)
    if path.is_dir():
        return Source(path, _shadowed(name))
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"there is no file {path}.")
        return Source(*unpacked(path))
    sample = bundled(name)
    if sample:
        return Source(sample)
    if name.startswith("sample-"):
        raise ModelError(_unknown(name))
    if path.is_file() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(f"{name} is no model folder (expected config.json and weights in it).")
    hub = HubFolder(ALIASES.get(name, name), revision, _unknown(name))
    return Source(hub.folder, fetch_weights=hub.fetch_weights, has_revisions=True)


def _shadowed(name: str) -> tuple[str, ...]:
    """A sentence where a folder here has the name of a sample or an alias."""
    if bundled(name):
        what = "bundled sample"
    elif name in ALIASES:
        what = f"alias of {ALIASES[name]}"
    else:
        return ()
    return (f"{name} is the folder of that name here, not the {what}: write ./{name} to say so.",)


def _unknown(name: str) -> str:
    if name in ALIASES:
        return f"{name!r} stands for {ALIASES[name]}."
    near = get_close_matches(name, [*bundled_names(), *ALIASES], n=1, cutoff=0.75)
    return (
        f"{name!r} is no local folder, .gguf file, alias or bundled sample "
        f"({', '.join(bundled_names())}){f'; did you mean {near[0]}?' if near else '.'}"
    )
