"""How results look: rich tables for terminals, plain text, HTML fragments, figures and pages."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .html import as_html as as_html
    from .report import plot as plot
    from .terminal import as_rich as as_rich
    from .terminal import as_text as as_text
    from .terminal import together as together
    from .topics.reproduction import LOOKS as LOOKS

_WHERE = {
    "LOOKS": "topics.reproduction",
    "as_html": "html",
    "as_rich": "terminal",
    "as_text": "terminal",
    "plot": "report",
    "together": "terminal",
}
__all__ = ["LOOKS", "as_html", "as_rich", "as_text", "plot", "together"]


def __getattr__(name: str) -> Any:
    """Import a function when it is first used: tables of plain data need no results, no torch."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
