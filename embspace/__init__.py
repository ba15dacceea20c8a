"""Read a transformer in words: its weights in vocabulary space, exactly and with proof."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import evidence as evidence
    from .compare.alignment import align as align
    from .errors import EmbspaceError as EmbspaceError
    from .models.certify import certify as certify
    from .models.families import Family as Family
    from .projection.reader import ReadableModel as ReadableModel
    from .projection.reader import load as load
    from .vocabulary import VocabularySpace as VocabularySpace

__version__ = "0.1.0"

_WHERE = {
    "EmbspaceError": "errors",
    "Family": "models.families",
    "ReadableModel": "projection.reader",
    "VocabularySpace": "vocabulary",
    "align": "compare.alignment",
    "certify": "models.certify",
    "evidence": "compare.evidence",
    "load": "projection.reader",
}
__all__ = [
    "EmbspaceError",
    "Family",
    "ReadableModel",
    "VocabularySpace",
    "__version__",
    "align",
    "certify",
    "evidence",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import embspace` takes milliseconds."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_WHERE[name]}", __name__)
    value = module if module.__name__.endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
