"""Sentences from files, tables, folders, the Hub and the bundled writer."""

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checking import is_unicode, positive
from ..errors import TextError
from ..messages import first_line
from ..weights.hub import unreachable
from ..weights.json_files import path_of

if TYPE_CHECKING:
    pass

HUB = "hub:"  # hub:NAME, hub:NAME/CONFIG… is spelled hub:NAME@CONFIG, then #SPLIT
STYLES = ("reference", "story")  # of the bundled generator
COLUMNS = ("text", "sentence", "review", "content")
DEFAULT_LINES, SAMPLE_LINES = 12_000, 4_000
JSON = dict.fromkeys((".jsonl", ".ndjson", ".json"), "JSON lines")
TABLES = JSON | {".csv": "CSV", ".tsv": "TSV", ".parquet": "parquet"}


def sentences(
    source: str | Path | Iterable[str], *, column: str | None = None, limit: int | None = None
) -> tuple[tuple[str, ...], str]:
    """Sentences that are not empty, and a name for where they are from.

    Args:
        source: A file (one sentence a line), a .jsonl, .csv, .tsv or .parquet table, a folder of
            .txt files, `sample:reference` or `sample:story` (the bundled writer), a data set of the
            Hub (`hub:NAME@CONFIG#SPLIT`, streamed), or a list of strings.
        column: Of a table; found by its usual names where it is not given.
        limit: Read no more than so many.

    Returns:
        The sentences in order, and the name of their source.

    Raises:
        TextError: Where nothing can be read.
    """
    if limit is not None:
        positive(limit, "limit")
    if not isinstance(source, str | Path):
        return _kept(_given(source), "given sentences", limit)
    name = str(source)
    if name.startswith("sample:"):
        return _written(name, limit or SAMPLE_LINES)
    if name.startswith(HUB):
        return _kept(_from_hub(name, column), name, limit or DEFAULT_LINES)
    require_source(name)
    path = path_of(name)
    return _kept(_from_path(path, column), path.name, limit)


def require_source(name: str) -> None:
    """Raise TextError for a file or folder that is not there; to be called before long work."""
    if not name.startswith(("sample:", HUB)) and not path_of(name).exists():
        raise TextError(
            f"there is no text {name!r}: give a file, a folder, {HUB}NAME or sample:reference."
        )


def require_characters(texts: Iterable[str]) -> None:
    """Raise TextError for a text with a lone surrogate, which no tokenizer reads."""
    for text in texts:
        if not is_unicode(text):
            shown = ascii(text[:40])
            raise TextError(f"{shown} holds half a character, which no tokenizer reads.")


def _kept(lines: Iterable[str], source: str, limit: int | None) -> tuple[tuple[str, ...], str]:
    kept = (line.strip() for line in lines)
    found = tuple(islice((line for line in kept if line), limit))
    if not found:
        raise TextError(f"{source} holds no text.")
    require_characters(found)
    return found, source


def _given(lines: Any) -> Iterator[str]:
    if not isinstance(lines, Iterable):
        raise TextError(f"a text is a name, a path or a list of sentences, not {str(lines)[:60]}.")
    for line in lines:
        if not isinstance(line, str):
            raise TextError(f"sentences are text, not {str(line)[:80]!r}.")
        yield line


def _written(name: str, n: int) -> tuple[tuple[str, ...], str]:
    import embspace_data

    style = name.removeprefix("sample:")
    if style not in STYLES:
        raise TextError(f"{name!r} is no bundled text: use sample:{' or sample:'.join(STYLES)}.")
    return tuple(embspace_data.sentences(style, n, 0)), name


def _from_path(path: Path, column: str | None) -> Iterator[str]:
    if path.is_dir():
        for file in sorted(path.rglob("*.txt")):
            yield from _lines(file)
    elif is_table(path):
        yield from _column(path, column)
    else:
        yield from _lines(path)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:  # some editors put a mark first
            yield from file
    except (OSError, ValueError) as error:
        raise TextError(f"{path} cannot be read as UTF-8 text: {first_line(error)}.") from error


def _column(path: Path, column: str | None) -> Iterator[str]:
    yield from _cells(table_rows(path), column, str(path))


def _cells(rows: Iterable[Any], column: str | None, where: str) -> Iterator[str]:
    """The column's text of every row; found by its usual names where none is given."""
    for row in rows:
        if column is None:
            column = next((name for name in COLUMNS if name in row), None)
        if column is None or column not in row:
            names = ", ".join(str(name) for name in row)[:200]
            wanted = column or " or ".join(COLUMNS)
            raise TextError(f"{where} has no column {wanted}; it has {names}: give column=NAME.")
        if not isinstance(row[column], str):
            raise TextError(f"{where}: column {column} holds {str(row[column])[:60]!r}, no text.")
        yield " ".join(row[column].split())


def is_table(path: Path) -> bool:
    """Whether a file's name ends like that of a table, in letters of either case."""
    return path.suffix.lower() in TABLES


def table_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a .jsonl, .csv, .tsv or .parquet file, a dict each. Raises TextError."""
    if not is_table(path):
        raise TextError(f"{path} is no table: give a {', '.join(TABLES)} file.")
    kind = TABLES[path.suffix.lower()]
    rows = {"JSON lines": _json_rows, "parquet": _parquet_rows}.get(kind, _csv_rows)
    try:
        for row in rows(path):
            if not isinstance(row, dict):
                raise TextError(f"{path}: expected one object a line, got {str(row)[:60]!r}.")
            yield row
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise TextError(f"{path} cannot be read as {kind}: {first_line(error)}.") from error


def _json_rows(path: Path) -> Iterator[Any]:
    for n, line in enumerate(_lines(path), 1):
        if line.strip():
            try:
                found = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {n}: {first_line(error)}") from error
            yield found


def _csv_rows(path: Path) -> Iterator[Any]:
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8-sig", newline="") as file:
        mark = "\t" if path.suffix.lower() == ".tsv" else ","
        reader = csv.DictReader(file, delimiter=mark, strict=True)  # a quote left open is an error
        names = [name for name in reader.fieldnames or () if name]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two columns are called {twice[:60]}")
        yield from reader


def _parquet_rows(path: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise TextError("parquet files need pyarrow: pip install 'embspace[hub-data]'.") from error
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except ArrowException as error:
        raise ValueError(first_line(error)) from error


def _from_hub(name: str, column: str | None) -> Iterator[str]:
    """Rows of a Hub data set as they stream in; sentences where a row is a long text."""
    try:
        import datasets
    except ImportError as error:
        raise TextError(
            f"{name} needs the datasets library: pip install 'embspace[hub-data]'."
        ) from error
    place, _, split = name.removeprefix(HUB).partition("#")
    repo, _, config = place.partition("@")
    if not Path(repo).exists():  # else a data set on this machine
        _require_hub(name, repo)
    try:
        rows = datasets.load_dataset(repo, config or None, split=split or "train", streaming=True)
        for text in _cells(rows, column, name):
            yield from sentences_of(text)
    except TextError:
        raise
    except Exception as error:
        raise TextError(f"{name} cannot be read from the Hub: {first_line(error)}.") from error


def _require_hub(name: str, repo: str) -> None:
    """Raise TextError at once where the Hub cannot be asked, which `datasets` finds out slowly."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        HfApi().dataset_info(repo, timeout=10)
    except (HfHubHTTPError, HFValidationError) as error:  # an answer, if no good one
        raise TextError(f"{name} cannot be read from the Hub: {first_line(error)}.") from error
    except Exception as error:  # no route, a timeout, forbidden by the environment
        why, way_out = unreachable()
        raise TextError(f"{why}, so {name} cannot be read: {way_out}.") from error


def sentences_of(text: str) -> Iterator[str]:
    """A long text cut after full stops that a capital follows; pieces of 6 to 60 words."""
    import re

    for sentence in re.split(r'(?<=[.!?]) (?=[A-Z"])', text):
        if 6 <= len(sentence.split()) <= 60:
            yield sentence
