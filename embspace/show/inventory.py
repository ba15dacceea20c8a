"""The inventory of nameable models as tables."""

from typing import Any

from .tables import SheetView
from .view import Column, Sheet, View, shown


def inventory_view(found: dict[str, Any]) -> SheetView:
    """What `embspace models` prints: all there is, or what each given name stands for."""
    if "models" in found:
        return SheetView(Sheet("Models", "", (_named(found["models"]),)))
    views = (
        _samples(found["samples"]),
        _aliases(found["aliases"]),
        View(
            (Column("model_type, read by name"),),
            ((", ".join(found["architectures"]),),),
            "Architectures; others are read by their shape, if their certificate passes",
        ),
        _sizes(found["hub_cache"], "name", "In the Hub's cache"),
        _sizes(found["embspace_cache"]["kinds"], "kind", _cache_title(found["embspace_cache"])),
    )
    title = "What MODEL can be: a sample, an alias, a Hub name, a folder or a .gguf file"
    return SheetView(Sheet(title, "", views), stacked=True)


def size(n_bytes: int) -> str:
    """Bytes in the unit that leaves few digits."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= each:
            return f"{n_bytes / each:.1f} {unit}"
    return f"{n_bytes} B"


def _named(models: list[dict[str, Any]]) -> View:
    columns = (
        Column("name", tone="key"),
        Column("is"),
        Column("stands for"),
        Column("here"),
        Column("architecture", drop=1),
        Column("read", tone="faint", drop=2),
    )
    rows = tuple(
        (
            shown(m["name"]),
            m["kind"],
            shown(m["stands_for"]),
            "yes" if m["here"] else "no",
            m["architecture"] or "?",
            m["read"],
        )
        for m in models
    )
    return View(columns, rows)


def _samples(samples: list[dict[str, Any]]) -> View:
    columns = (Column("name", tone="key"), Column("size", "number", "faint"), Column("what it is"))
    rows = tuple(
        (s["name"] + (" *" if s["default"] else ""), size(s["bytes"]), s["description"])
        for s in samples
    )
    return View(columns, rows, "Bundled samples (* read where no MODEL is given)")


def _aliases(aliases: dict[str, str]) -> View:
    """Aliases that differ in a number only become one row."""
    names = list(aliases)
    first, last = names[0], names[-1]
    row = (f"{first} … {last}", f"{aliases[first]} … {aliases[last].rsplit('_', 1)[-1]}")
    return View((Column("alias", tone="key"), Column("Hub name")), (row,), "Aliases")


def _sizes(entries: list[dict[str, Any]], name: str, title: str) -> View:
    columns = (Column(name, tone="key"), Column("size", "number", "faint"))
    return View(columns, tuple((shown(e[name]), size(e["bytes"])) for e in entries), title)


def _cache_title(cache: dict[str, Any]) -> str:
    return f"In embspace's cache, {shown(cache['folder'])}"
