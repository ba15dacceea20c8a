"""How the inventory of `embspace models` looks: what MODEL can be, and what lies in the caches."""

from typing import Any

from ..report import Report, Table, number, text
from ..terminal import TerminalReport
from ..wording import shown, size


def inventory_view(found: dict[str, Any]) -> TerminalReport:
    """All there is, or what each given name stands for."""
    if "models" in found:
        return TerminalReport(Report("Models", "", (_named(found["models"]),)))
    cache = found["embspace_cache"]
    tables = (
        _samples(found["samples"]),
        _aliases(found["aliases"]),
        Table.of(
            [", ".join(found["architectures"])],
            [text("model_type, read by name", lambda names: names)],
            "Architectures; others are read by their shape, if their certificate passes",
        ),
        _sizes(found["hub_cache"], "name", "In the Hub's cache"),
        _sizes(cache["kinds"], "kind", f"In embspace's cache, {shown(cache['folder'])}"),
    )
    title = "What MODEL can be: a sample, an alias, a Hub name, a folder or a .gguf file"
    return TerminalReport(Report(title, "", tables), stacked=True)


def _named(models: list[dict[str, Any]]) -> Table:
    columns = (
        text("name", lambda m: shown(m["name"]), "key"),
        text("is", lambda m: m["kind"]),
        text("stands for", lambda m: shown(m["stands_for"])),
        text("here", lambda m: "yes" if m["here"] else "no"),
        text("architecture", lambda m: m["architecture"] or "?", drop=1),
        text("read", lambda m: m["read"], "faint", drop=2),
    )
    return Table.of(models, columns)


def _samples(samples: list[dict[str, Any]]) -> Table:
    columns = (
        text("name", lambda s: s["name"] + (" *" if s["default"] else ""), "key"),
        number("size", lambda s: size(s["bytes"]), "faint"),
        text("what it is", lambda s: s["description"]),
    )
    return Table.of(samples, columns, "Bundled samples (* read where no MODEL is given)")


def _aliases(aliases: dict[str, str]) -> Table:
    """Aliases that differ in a number only become one row."""
    names = list(aliases)
    first, last = names[0], names[-1]
    columns = (
        text("alias", lambda _: f"{first} … {last}", "key"),
        text("Hub name", lambda _: f"{aliases[first]} … {aliases[last].rsplit('_', 1)[-1]}"),
    )
    return Table.of([names], columns, "Aliases")


def _sizes(entries: list[dict[str, Any]], name: str, title: str) -> Table:
    columns = (
        text(name, lambda e: shown(e[name]), "key"),
        number("size", lambda e: size(e["bytes"]), "faint"),
    )
    return Table.of(entries, columns, title)
