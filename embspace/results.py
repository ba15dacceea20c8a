"""What every result can do: become a dict, JSON, CSV, a DataFrame; and show itself when printed.

A result is a frozen dataclass whose fields are its data; dicts and rows are derived from them.
"""

import csv
import io
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, overload

from .errors import EmbspaceError

WIDTH, WIDEST = 100, 200  # columns of a table as text where no terminal says, and at most


class Record:
    """A part of a result: a frozen dataclass that becomes a dict of its fields."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as plain lists, numbers and strings."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Result(Record, ABC):
    """Base of all results: frozen, with `to_dict`, `to_json`, `to_csv` and a rich and HTML view.

    How a result looks is decided in `embspace.show`, which is looked up only when it is shown.
    """

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The result as a table, one dict a row with the same keys."""

    def to_pandas(self) -> Any:
        """`rows` as a pandas DataFrame. Raises EmbspaceError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise EmbspaceError("to_pandas needs pandas: pip install pandas.") from error
        return pandas.DataFrame(
            [{name: _whole(cell) for name, cell in row.items()} for row in self.rows()]
        )

    def to_json(self, *, indent: int | None = 2) -> str:
        """`to_dict` as JSON text; characters outside ASCII stay readable, odd bytes are escaped."""
        return _whole(
            json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)
        )

    def to_csv(self) -> str:
        """`rows` as CSV text with a header; cells that a spreadsheet would run are quoted."""
        return csv_text(self.rows())

    def __str__(self) -> str:
        """The tables as plain text, so that `print` shows them."""
        from rich.console import Console

        out = io.StringIO()
        width = min(WIDEST, shutil.get_terminal_size((WIDTH, 24)).columns)
        Console(file=out, width=width, color_system=None, force_terminal=False).print(self)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())

    def __rich__(self) -> Any:
        return import_module("embspace.show").as_rich(self)

    def _repr_html_(self) -> str:
        return import_module("embspace.show").as_html(self)


@dataclass(frozen=True)
class ListResult(Result):
    """A result that is a list of like parts: it has a length, is iterated over and indexed.

    `ITEMS` names the field that holds the parts.
    """

    ITEMS: ClassVar[str]

    @property
    def _items(self) -> Sequence[Any]:
        return getattr(self, self.ITEMS)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    @overload
    def __getitem__(self, n: int) -> Any: ...
    @overload
    def __getitem__(self, n: slice) -> Sequence[Any]: ...
    def __getitem__(self, n: int | slice) -> Any:
        return self._items[n]

    def __bool__(self) -> bool:
        return True  # a result without parts is a result

    def rows(self) -> list[dict[str, Any]]:
        """One row a part."""
        return [part.to_dict() for part in self]


@dataclass(frozen=True)
class SeveralResults(ListResult):
    """Like results, shown one below the other; their rows are one table."""

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all, in order."""
        return [row for result in self for row in result.rows()]

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*(result.__rich__() for result in self))

    def _repr_html_(self) -> str:
        return "\n".join(result._repr_html_() for result in self)


def plain(value: Any) -> Any:
    """A value as JSON has it: records as dicts, sequences as lists, keys as text."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def csv_text(rows: list[dict[str, Any]], *, header: bool = True) -> str:
    """Rows with the same keys as CSV text; a cell that a spreadsheet would run is made text."""
    names = list(rows[0]) if rows else []
    table = [names] if header and rows else []
    table += [[_inert(row[name]) for name in names] for row in rows]
    return _whole("".join(_csv_line(cells) for cells in table))


def _csv_line(cells: Sequence[Any]) -> str:
    """One line, ended by a line feed; cells with either kind of line break are quoted."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def _whole(value: Any) -> Any:
    """Text whose odd bytes, the parts of characters, are escaped; anything else as it is."""
    if not isinstance(value, str):
        return value
    return value.encode("utf8", errors="backslashreplace").decode("utf8")


def _inert(cell: Any) -> Any:
    """Text that begins like a formula gets a leading apostrophe, as spreadsheets understand it."""
    return "'" + cell if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell


def flat(mapping: Mapping[str, Any]) -> str:
    """`key value, key value` of what is set, for captions."""
    return ", ".join(f"{key} {value}" for key, value in mapping.items() if value not in (None, ""))
