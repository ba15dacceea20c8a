"""What every result can do: become a dict, JSON, CSV; and show itself when displayed or printed."""

import csv
import io
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

WIDTH, WIDEST = 100, 200  # columns of a table as text where no terminal says, and at most


@dataclass(frozen=True)
class Result(ABC):
    """Base of all results: frozen, with `to_dict`, `to_json`, `to_csv` and a rich and HTML view.

    How a result looks is decided in `embspace.report`, which is looked up only when it is shown.
    """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, for JSON."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The result as a table, one dict a row with the same keys."""

    def to_json(self, *, indent: int | None = 2) -> str:
        """`to_dict` as JSON text; characters outside ASCII stay readable, odd bytes are escaped."""
        text = json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)
        return text.encode("utf8", errors="backslashreplace").decode("utf8")

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
        return import_module("embspace.report").as_rich(self)

    def _repr_html_(self) -> str:
        return import_module("embspace.report").as_html(self)


def csv_text(rows: list[dict[str, Any]], *, header: bool = True) -> str:
    """Rows with the same keys as CSV text; a cell that a spreadsheet would run is made text."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    if header and rows:
        writer.writeheader()
    writer.writerows([{key: _inert(cell) for key, cell in row.items()} for row in rows])
    return out.getvalue()


def _inert(cell: Any) -> Any:
    """Text that begins like a formula gets a leading apostrophe, as spreadsheets understand it."""
    return "'" + cell if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell


def flat(mapping: Mapping[str, Any]) -> str:
    """`key value, key value` of what is set, for captions."""
    return ", ".join(f"{key} {value}" for key, value in mapping.items() if value not in (None, ""))
