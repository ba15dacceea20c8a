"""Every example in a docstring runs, and prints what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _modules_with_examples() -> list[str]:
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "embspace").rglob("*.py")
        if ">>> " in path.read_text(encoding="utf8")
    )


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_print_what_they_say(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed
