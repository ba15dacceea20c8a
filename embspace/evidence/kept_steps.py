"""Finished steps of a reproduction on disk: each a folder that is there whole or not at all."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cache import read_json, write_atomically
from ..errors import EmbspaceError
from ..results import Result
from ..weights.json_files import path_of

RECORD, RESULT, TABLE = "step.json", "result.json", "table.csv"
TEMPORARY = ".embspace-"
MARKER = "reproduction.json"


@dataclass(frozen=True)
class Kept:
    """A finished step: its folder, the JSON that claims are judged by, its settings."""

    folder: Path
    measured: dict[str, Any]

    def text(self, name: str) -> str | None:
        """A file of the step, or None where it has none of that name."""
        path = self.folder / name
        return path.read_text(encoding="utf8") if path.is_file() else None


class Keeper:
    """A folder of finished steps. Steps of another key, or damaged, count as not done."""

    def __init__(self, home: Path, paper: str) -> None:
        """Raises EmbspaceError where the folder holds other things, or cannot be made."""
        self.home = path_of(str(home))
        marker = self.home / MARKER
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            others = any(True for _ in self.home.iterdir()) and not marker.is_file()
        except OSError as error:
            raise EmbspaceError(f"{home} cannot be made: {error.strerror}.") from error
        if others:
            raise EmbspaceError(f"{home} holds other things: give out=FOLDER, a new one.")
        known = read_json(marker)
        if isinstance(known, dict) and known.get("paper") not in (None, paper):
            raise EmbspaceError(
                f"{home} holds a reproduction of {str(known['paper'])[:40]!r}: "
                "give out=FOLDER, another one."
            )
        write_atomically(marker, json.dumps({"paper": paper}) + "\n")
        for left in self.home.glob(f"{TEMPORARY}*"):  # of a run that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def find(self, name: str, key: str) -> Kept | None:
        """The step of that name, if it was finished with that very key and is undamaged."""
        folder = self.home / name
        record = read_json(folder / RECORD)
        if not isinstance(record, dict) or record.get("key") != key:
            return None
        files = record.get("files")
        if not isinstance(files, dict) or {RESULT, TABLE} - set(files):
            return None
        if any(_digest(folder / file) != digest for file, digest in files.items()):
            return None
        result = read_json(folder / RESULT)
        if not isinstance(result, dict):
            return None
        return Kept(folder, result)

    def keep(
        self, name: str, key: str, result: Result, draw: Callable[[Result, Path], None]
    ) -> Kept:
        """Write JSON and CSV of a step, and what `draw` puts beside them; they appear together."""
        with self._appearing(name) as made:
            for file, text in ((RESULT, result.to_json()), (TABLE, result.to_csv())):
                (made / file).write_text(text, encoding="utf8")
            draw(result, made)
            files = {path.name: _digest(path) for path in sorted(made.iterdir())}
            record = {"name": name, "key": key, "files": files}
            (made / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf8")
        kept = self.find(name, key)
        if kept is None:
            raise EmbspaceError(f"{self.home / name} changed while it was written.")
        return kept

    @contextmanager
    def _appearing(self, name: str) -> Iterator[Path]:
        """A folder under another name, which takes the step's place when its block ends."""
        target = self.home / name
        try:
            made = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=self.home))
            try:
                yield made
                for path in made.iterdir():
                    _flush(path)
                os.chmod(made, 0o755)
                if target.exists():  # of other settings, or damaged
                    os.replace(target, made.with_name(made.name + ".old"))
                os.replace(made, target)
            finally:
                shutil.rmtree(made, ignore_errors=True)
                shutil.rmtree(made.with_name(made.name + ".old"), ignore_errors=True)
        except OSError as error:
            raise EmbspaceError(f"{target} cannot be written: {error.strerror}.") from error


def _flush(path: Path) -> None:
    """On the disk before the folder gets its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
