"""Imports go one way, without a circle, along the floors below: of the package the top ones last.

`results.py` looks up `embspace.show` by name when a result is shown: the one exception, and
dynamic. `embspace/__init__.py` and `__main__.py` are doors, which import when asked.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import embspace

PACKAGE = Path(embspace.__file__).parent
ROOT = PACKAGE.parent
FLOORS = (
    {"notation", "errors", "version"},
    {"checking", "messages", "interrupts", "memory", "progress"},
    {"cache", "results", "intervals", "estimate"},
    {"weights"},
    {"text"},
    {"live"},
    {"read"},
    {"maps"},
    {"shorten"},
    {"between"},
    {"evidence"},
    {"show"},
    {"cli"},
)
DOORS = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}
FILES = sorted({*PACKAGE.rglob("*.py"), *(ROOT / "cli").rglob("*.py")} - DOORS)


def room_of(module: str) -> str | None:
    """The part of the house a dotted module name belongs to; None for other packages."""
    first, *rest = module.split(".")
    if first == "embspace_cli":
        return "cli"
    return rest[0] if first == "embspace" and rest else None


def floor_of(room: str) -> int:
    return next(n for n, rooms in enumerate(FLOORS) if room in rooms)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return name.replace("cli", "embspace_cli", 1) if parts[0] == "cli" else name


def imported(path: Path) -> Iterator[str]:
    """Dotted names of everything that a file imports, wherever in it."""
    here = module_of(path).split(".")
    package = here if path.name == "__init__.py" else here[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*up, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_from_its_own_floor_or_below(path):
    here = room_of(module_of(path))
    assert here is not None
    known = {room for rooms in FLOORS for room in rooms}
    for name in imported(path):
        there = room_of(name)
        if there is None or there == here or there not in known:
            continue
        assert floor_of(there) <= floor_of(here), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_of_the_package_goes_out_by_its_front_door(path):
    names = {name.removeprefix("embspace.") for name in imported(path) if "embspace" in name}
    doors = set(embspace.__all__) & names if room_of(module_of(path)) != "cli" else set()
    assert not doors, f"{path.name} takes {', '.join(doors)} from embspace/__init__.py"


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Groups of files that reach each other through what they import."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(imports[start])
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                waiting += imports[name]
        return seen

    every = {name: reached(name) for name in imports}
    found: list[set[str]] = []
    for name, others in every.items():
        circle = {other for other in others if name in every[other]}
        if name in circle and circle not in found:
            found.append(circle)
    return found


def test_a_circle_is_found():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(imports) == [{"b", "c"}]
    assert not circles({"a": {"b"}, "b": set()})


def test_no_files_import_each_other_in_a_circle():
    """Over every import statement, those for types and those inside functions too."""
    files = {module_of(path): path for path in FILES}
    found = circles({name: files.keys() & set(imported(path)) for name, path in files.items()})
    assert found == []


def test_every_room_has_its_floor():
    rooms = {room_of(module_of(path)) for path in FILES}
    assert rooms <= {room for level in FLOORS for room in level}


def test_only_results_looks_up_the_report_by_name():
    lookups = [p for p in FILES if '"embspace.show"' in p.read_text(encoding="utf8")]
    assert lookups == [PACKAGE / "results.py"]
