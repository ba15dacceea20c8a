"""How results look: rich tables for terminals, plain text, HTML fragments for notebooks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .html import as_html as as_html
    from .terminal import as_rich as as_rich
    from .terminal import as_text as as_text
    from .terminal import together as together

_WHERE = {
    "as_html": "html",
    "as_rich": "terminal",
    "as_text": "terminal",
    "together": "terminal",
}
__all__ = ["as_html", "as_rich", "as_text", "together"]


def __getattr__(name: str) -> Any:
    """Import a function when it is first used: tables of plain data need no results, no torch."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
