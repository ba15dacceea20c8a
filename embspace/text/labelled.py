"""Labelled texts to train and to score on: folders, tables, the Hub's IMDB, our own reviews."""

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ..checking import positive
from ..checking import seed as checked_seed
from ..errors import TextError
from ..messages import first_line
from ..weights.json_files import path_of
from .sources import COLUMNS, TABLES, is_table, table_rows
from .text import mark_of

SAMPLE, IMDB = "sample", "imdb"
HUB_IMDB = "stanfordnlp/imdb"
LABEL_COLUMNS = ("label", "labels", "sentiment", "class", "target")
NAMES = {"pos": "positive", "neg": "negative"}  # of aclImdb's folders
UNLABELLED = "unsup"
HELD_OUT, VALIDATION = 0.2, 0.1  # shares: of a table without a test set; of the training texts
N_TRAIN, N_TEST = 3000, 1000
Row = tuple[str, str]
Side = Literal["train", "test"]


@dataclass(frozen=True)
class Labelled:
    """Texts and the number of each one's label among `names`."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        """16 hex digits of the texts and their labels, in order."""
        digest = hashlib.sha256()
        for text, label in zip(self.texts, self.labels, strict=True):
            digest.update(f"{self.names[label]}\t{text}\n".encode("utf8", "replace"))
        return digest.hexdigest()[:16]

    def of(self, chosen: Iterable[int]) -> "Labelled":
        """Some of the texts."""
        kept = list(chosen)
        return Labelled(
            tuple(self.texts[i] for i in kept), tuple(self.labels[i] for i in kept), self.names
        )

    def without(self, marks: Iterable[str]) -> "Labelled":
        """Those whose short hash is not among some."""
        seen = set(marks)
        return self.of(i for i, text in enumerate(self.texts) if mark_of(text) not in seen)

    def named(self, names: tuple[str, ...]) -> "Labelled":
        """The same with the labels numbered as in `names`. Raises TextError for another label."""
        lost = sorted(set(self.names) - set(names))
        if lost:
            known = ", ".join(names)
            raise TextError(
                f"the data has the label {lost[0][:80]!r}; the classifier knows {known}."
            )
        number = [names.index(name) for name in self.names]
        return Labelled(self.texts, tuple(number[label] for label in self.labels), names)


@dataclass(frozen=True)
class Split:
    """Texts to train on, to choose the epoch by, and to score on; no text is in two of them."""

    train: Labelled
    validation: Labelled
    test: Labelled
    source: str
    n_dropped: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Source, sizes and hashes."""
        sides = {"train": self.train, "validation": self.validation, "test": self.test}
        return {
            "source": self.source,
            "labels": list(self.train.names),
            **{f"n_{name}": len(side) for name, side in sides.items()},
            **{f"{name}_digest": side.digest for name, side in sides.items()},
            "dropped": self.n_dropped,
        }


def read_split(
    source: str | Path,
    *,
    n_train: int = N_TRAIN,
    n_test: int = N_TEST,
    text_column: str | None = None,
    label_column: str | None = None,
    seed: int = 0,
) -> Split:
    """Training, validation and test texts of a source, drawn by a seed.

    `source`: `sample` (our own film reviews), `imdb` (from the Hub), a folder with `train` and
    `test` of one folder of .txt files a label (aclImdb's layout), or a .jsonl, .csv, .tsv or
    .parquet file, of which a fifth is held out. A tenth of the training texts chooses the epoch.
    Texts that repeat, or lie on both sides, are taken once, for the test. Raises TextError.
    """
    seed = checked_seed(seed)
    wanted = {"train": positive(n_train, "n_train"), "test": positive(n_test, "n_test")}
    found = _sides(str(source), wanted, text_column, label_column, seed)
    test = _unique(found["test"], set())
    train = _unique(found["train"], {text for text, _ in test})
    n_dropped = sum(map(len, found.values())) - len(test) - len(train)
    names = _names([*train, *test], str(source))
    train, test = (
        _drawn(rows, wanted[side], seed) for rows, side in ((train, "train"), (test, "test"))
    )
    n_validation = max(1, round(VALIDATION * len(train)))
    if len(train) - n_validation < len(names) or not test:
        raise TextError(f"{source} holds too few texts to train on some and to score on others.")
    labelled = [_labelled(rows, names) for rows in (train, test)]
    validation = labelled[0].of(range(n_validation))
    kept = labelled[0].of(range(n_validation, len(train)))
    return Split(kept, validation, labelled[1], _shown(str(source)), n_dropped)


def read_test(source: str | Path, *, n_test: int = N_TEST, **options: Any) -> Labelled:
    """The test texts of a source, as `read_split` draws them with the same seed."""
    return read_split(source, n_test=n_test, **options).test


def require_labelled(source: str | Path) -> None:
    """Raise TextError where `read_split` would find nothing; to be called before long work."""
    path = path_of(str(source))
    if (
        source not in (SAMPLE, IMDB)
        and not path.is_dir()
        and not (is_table(path) and path.is_file())
    ):
        raise TextError(
            f"there are no labelled texts {str(source)!r}: give {SAMPLE}, {IMDB}, a folder with "
            f"train and test, or a {', '.join(TABLES)} file."
        )


def _sides(
    source: str, wanted: dict[str, int], text: str | None, label: str | None, seed: int
) -> dict[str, list[Row]]:
    """(text, label's name) of the training and of the test side."""
    if source == SAMPLE:
        return {side: _written(side, n, seed) for side, n in wanted.items()}
    if source == IMDB:
        return {side: _from_hub(side) for side in wanted}
    require_labelled(source)
    path = path_of(source)
    if path.is_dir():
        return {side: _from_folder(path, side) for side in wanted}
    return _parted(list(_from_table(path, text, label)), seed)


def _written(side: str, n: int, seed: int) -> list[Row]:
    """Our own reviews, the same for the same seed, whatever n."""
    import embspace_data

    return list(embspace_data.sentiment(side, n, seed))


def _from_hub(side: str) -> list[Row]:
    try:
        import datasets
    except ImportError as error:
        raise TextError(
            f"{IMDB} needs the datasets library: pip install 'embspace[hub-data]'; or give a "
            "folder of reviews, or sample."
        ) from error
    try:
        rows: Any = datasets.load_dataset(HUB_IMDB, split=side)
        return [(_flat(row["text"]), list(NAMES.values())[1 - row["label"]]) for row in rows]
    except Exception as error:
        raise TextError(
            f"{IMDB} cannot be had from the Hub ({first_line(error)}): give a folder of reviews, "
            "or sample."
        ) from error


def _from_folder(path: Path, side: str) -> list[Row]:
    home = path / side
    folders = [p for p in sorted(home.glob("*")) if p.is_dir() and p.name != UNLABELLED]
    if len(folders) < 2:
        raise TextError(
            f"{path} is no folder of labelled texts: {home} should hold one folder of .txt files a "
            "label (pos and neg)."
        )
    return [
        (_flat(_text(file)), NAMES.get(folder.name, folder.name))
        for folder in folders
        for file in sorted(folder.glob("*.txt"))
    ]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # some editors put a mark first
    except (OSError, ValueError) as error:
        raise TextError(f"{file} cannot be read as UTF-8 text: {first_line(error)}.") from error


def _from_table(path: Path, text: str | None, label: str | None) -> Iterator[Row]:
    for row in table_rows(path):
        text = text or _usual(row, COLUMNS)
        label = label or _usual(row, LABEL_COLUMNS)
        for name, option in ((text, "text_column"), (label, "label_column")):
            if name is None or name not in row:
                names = ", ".join(str(n) for n in row)[:200]
                wanted = "" if name is None else f" no column {name[:80]};"
                raise TextError(f"{path} has{wanted} the columns {names}: give {option}=NAME.")
        found, value = row[str(text)], row[str(label)]
        if not isinstance(found, str):
            raise TextError(f"{path}: column {text} holds {str(found)[:60]!r}, no text.")
        if not isinstance(value, str | int):
            raise TextError(f"{path}: column {label} holds {str(value)[:60]!r}, no label.")
        yield _flat(found), str(value).strip()


def _usual(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in row), None)


def _parted(rows: list[Row], seed: int) -> dict[str, list[Row]]:
    """A table's rows with a fifth held out; equal texts go together."""
    texts = list(dict.fromkeys(text for text, _ in rows))
    random.Random(f"held out {seed}").shuffle(texts)
    held = set(texts[: max(1, round(HELD_OUT * len(texts)))])
    return {
        "train": [row for row in rows if row[0] not in held],
        "test": [row for row in rows if row[0] in held],
    }


def _unique(rows: list[Row], elsewhere: set[str]) -> list[Row]:
    """Rows with a text, each text once, none that lies elsewhere."""
    found: dict[str, str] = {}
    for text, label in rows:
        if text and text not in elsewhere:
            found.setdefault(text, label)
    return list(found.items())


def _names(rows: list[Row], source: str) -> tuple[str, ...]:
    names = tuple(sorted({label for _, label in rows}))
    if len(names) < 2:
        raise TextError(f"{source} has {len(names)} label(s): a classifier needs at least two.")
    if len(names) > 100:
        raise TextError(f"{source} has {len(names)} labels: is that column one of labels?")
    return names


def _drawn(rows: list[Row], n: int, seed: int) -> list[Row]:
    """n rows in a random order, for files lie label by label."""
    return random.Random(seed).sample(rows, min(n, len(rows)))


def _labelled(rows: list[Row], names: tuple[str, ...]) -> Labelled:
    texts, labels = zip(*rows, strict=True)
    return Labelled(tuple(texts), tuple(names.index(label) for label in labels), names)


def _flat(text: str) -> str:
    """A text on one line, without the line breaks of web pages."""
    return " ".join(text.replace("<br />", " ").split())


def _shown(source: str) -> str:
    """A source by its own name, wherever it lies."""
    return source if source in (SAMPLE, IMDB) else path_of(source).name
