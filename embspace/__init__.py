"""Read a transformer in words: its weights in vocabulary space, exactly and with proof."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from . import evidence as evidence
    from .between.alignment import align as align
    from .between.diff import diff as diff
    from .between.finetune import finetune as finetune
    from .between.stitch import stitch as stitch
    from .errors import EmbspaceError as EmbspaceError
    from .live.certificate import check as check
    from .maps.fit import fit as fit
    from .maps.lens import lens as lens
    from .maps.maps import Maps as Maps
    from .maps.refine import refine as refine
    from .maps.score import score as score
    from .maps.transfer import transfer as transfer
    from .read.reader import ReadableModel as ReadableModel
    from .read.reader import load as load
    from .shorten.alternation import alternate as alternate
    from .shorten.early_exit import exits as exits
    from .shorten.generation import generate as generate
    from .shorten.submodules import submodules as submodules
    from .text.text import Text as Text
    from .weights.registry import Family as Family
    from .weights.run_settings import RunSettings as RunSettings
    from .weights.vocabulary import VocabularySpace as VocabularySpace

_WHERE = {
    "EmbspaceError": "errors",
    "Family": "weights.registry",
    "Maps": "maps.maps",
    "ReadableModel": "read.reader",
    "RunSettings": "weights.run_settings",
    "Text": "text.text",
    "VocabularySpace": "weights.vocabulary",
    "align": "between.alignment",
    "alternate": "shorten.alternation",
    "check": "live.certificate",
    "diff": "between.diff",
    "evidence": "evidence",
    "exits": "shorten.early_exit",
    "finetune": "between.finetune",
    "fit": "maps.fit",
    "generate": "shorten.generation",
    "lens": "maps.lens",
    "load": "read.reader",
    "refine": "maps.refine",
    "score": "maps.score",
    "stitch": "between.stitch",
    "submodules": "shorten.submodules",
    "transfer": "maps.transfer",
}
_EARLIER = {"certify": "check"}  # names that were given up, still taken
__all__ = [
    "EmbspaceError",
    "Family",
    "Maps",
    "ReadableModel",
    "RunSettings",
    "Text",
    "VocabularySpace",
    "__version__",
    "align",
    "alternate",
    "check",
    "diff",
    "evidence",
    "exits",
    "finetune",
    "fit",
    "generate",
    "lens",
    "load",
    "refine",
    "score",
    "stitch",
    "submodules",
    "transfer",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import embspace` takes milliseconds."""
    name = _EARLIER.get(name, name)
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_WHERE[name]}", __name__)
    value = getattr(module, name, module)  # `evidence` is a module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
