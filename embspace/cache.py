"""The user's cache folder: certificates and unpacked checkpoints."""

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import EmbspaceError

LOCKS = "locks"
NOWHERE = Path(os.devnull)  # as a folder: nothing is found in it, nothing can be written to it


def cache_folder(kind: str) -> Path:
    """Folder of one kind of cached thing; `EMBSPACE_CACHE` moves it. Created when written to.

    A user without a home folder has none, rather than one called `~` wherever they are.
    """
    from platformdirs import user_cache_path

    chosen = os.environ.get("EMBSPACE_CACHE")
    if chosen:
        return Path(chosen) / kind
    try:
        folder = user_cache_path("embspace")
    except RuntimeError:  # newer versions of platformdirs say so, older ones give `~` back
        folder = NOWHERE
    return (folder if folder.is_absolute() else NOWHERE) / kind


def write_atomically(path: Path, content: str | bytes, *, make_folder: bool = False) -> None:
    """Write a file whole or not at all; links are followed.

    `make_folder` creates the folder it lies in. Raises EmbspaceError, naming the file.
    """
    with replacing(path, make_folder=make_folder) as name:
        name.write_bytes(content.encode("utf8") if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, *, make_folder: bool = False) -> Iterator[Path]:
    """A temporary name to write to; it takes the file's place afterwards, and is gone after an
    error. Raises EmbspaceError, naming the file, where it cannot be written.
    """
    with told(path), _temporary(require_file(path, make_folder=make_folder)) as name:
        yield name


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder: an empty one to fill, which takes the place of `path` afterwards.

    Raises EmbspaceError where `path` is anything but a folder, or cannot be written.
    """
    with told(path):
        target = path.expanduser().resolve()
        if target.exists() and not target.is_dir():
            raise EmbspaceError(f"{path} is no folder: give the name of a new one.")
        _require_folder(path, target.parent)
        home = Path(tempfile.mkdtemp(prefix=unfinished(target.parent), dir=target.parent))
        made = home / target.name
        try:
            made.mkdir(mode=0o755)
            yield made
            for file in made.rglob("*.safetensors"):  # the library makes them for their owner only
                file.chmod(0o644)
            os.replace(made, target)
        finally:
            shutil.rmtree(home, ignore_errors=True)


def require_file(path: str | Path, *, make_folder: bool = False) -> Path:
    """Where a file is to be written, links followed; to be called before long work, too.

    Raises EmbspaceError for a folder, for what is no regular file (a device, a pipe or a socket
    would be replaced by a file), and where the folder is missing or nothing may be written in it.
    """
    path = Path(path)
    with told(path):
        target = path.expanduser().resolve()
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise EmbspaceError(f"{path} is a folder: give the name of a file to write.")
        if target.exists() and not target.is_file():
            raise EmbspaceError(
                f"{path} is a device, pipe or socket, no file: give the name of a file to write."
            )
        _require_folder(path, target.parent)
    return target


def _require_folder(path: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise EmbspaceError(f"{path} cannot be written: there is no folder {folder}.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EmbspaceError(f"{path} cannot be written: no permission to write in {folder}.")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What goes wrong while a file is written, in one sentence."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:  # no permission; links in a ring; a NUL
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)[:200]
        raise EmbspaceError(f"{_shown(path)} cannot be written: {reason}.") from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError":  # its only word for a full disk
            raise
        raise EmbspaceError(f"{_shown(path)} cannot be written: {error}.") from error


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:199]}…"


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """A new file in the target's folder that takes the target's place when all went well."""
    handle, name = tempfile.mkstemp(prefix=unfinished(target.parent), dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def unfinished(folder: Path) -> str:
    """How names of what is being written in a folder begin: they say by which process.

    What killed processes of this machine left there is removed first.
    """
    import psutil

    mine = f".embspace-{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}-"
    for left in folder.glob(f"{mine}*"):
        pid = left.name.removeprefix(mine).split("-")[0]
        if not pid.isdecimal() or psutil.pid_exists(int(pid)):
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    return f"{mine}{os.getpid()}-"


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """One process at a time for long work that writes into a place; the lock dies with its process.

    It lies in the cache; where that cannot be written, there is none.
    Raises EmbspaceError where another process has it, and for a place that cannot be.
    """
    from filelock import FileLock, Timeout

    with told(place):
        name = hashlib.sha256(os.fsencode(place.resolve())).hexdigest()[:24]
    lock = FileLock(cache_folder(LOCKS) / f"{name}.lock", timeout=0)
    with suppress(OSError, NotImplementedError):  # a read-only cache, a system without locks
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise EmbspaceError(
                f"another run is writing {_shown(place)}: wait for it, or give another name."
            ) from None
    try:
        yield
    finally:
        lock.release()


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
