"""How results look: rich tables for terminals, HTML fragments for notebooks."""

from .html import as_html
from .tables import as_rich

__all__ = ["as_html", "as_rich"]
