"""Numbers of a result, found by a path in its plain form."""

from collections.abc import Iterator
from typing import Any

ALL, OR = "*", "|"
Numbers = dict[str, float]


def select(data: Any, path: str) -> Numbers:
    """All numbers at a path like `layers/mat/*/precision@1`, by what tells them apart.

    `*` stands for every key, `a|b` for those that exist; `kind=a|b` keeps the items of a list whose
    field is one of these, a number takes one item. Where nothing tells several apart they are
    counted. Missing and empty (null) numbers are left out.
    """
    found = list(_walk(data, path.split("/"), ()))
    numbers = [(" ".join(name), float(value)) for name, value in found if _is_number(value)]
    if len({name for name, _ in numbers}) < len(numbers):
        numbers = [(f"{name} #{n}".strip(), value) for n, (name, value) in enumerate(numbers)]
    return dict(numbers)


def _walk(
    data: Any, path: list[str], name: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not path:
        yield name, data
        return
    step, rest = path[0], path[1:]
    if "=" in step:
        yield from _kept(data, step, rest, name)
    elif isinstance(data, list) and step.isdecimal():
        if int(step) < len(data):
            yield from _walk(data[int(step)], rest, name)
    elif isinstance(data, dict):
        several = step == ALL or OR in step
        for key in data if step == ALL else step.split(OR):
            if key in data:
                yield from _walk(data[key], rest, (*name, key) if several else name)


def _kept(
    data: Any, step: str, rest: list[str], name: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Items of a list whose field has one of some values; named by their layer."""
    key, _, values = step.partition("=")
    wanted = values.split(OR)
    for item in data if isinstance(data, list) else ():
        if isinstance(item, dict) and str(item.get(key)) in wanted:
            own = (str(item[key]),) if len(wanted) > 1 else ()
            layer = (str(item["layer"]),) if "layer" in item else ()
            yield from _walk(item, rest, (*name, *own, *layer))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
