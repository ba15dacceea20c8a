"""Read a transformer in words: its weights in vocabulary space, exactly and with proof."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .compare import evidence as evidence
    from .compare.alignment import align as align
    from .compare.difference.changes import diff as diff
    from .compare.stitching.sweep import stitch as stitch
    from .compare.tuning.finetuning import finetune as finetune
    from .errors import EmbspaceError as EmbspaceError
    from .mapping.alternation.alternating import alternate as alternate
    from .mapping.exiting.exits import exits as exits
    from .mapping.exiting.generating import generate as generate
    from .mapping.fitting import fit as fit
    from .mapping.lens.lensing import lens as lens
    from .mapping.maps import Maps as Maps
    from .mapping.refine import refine as refine
    from .mapping.scoring import score as score
    from .mapping.submodules import submodules as submodules
    from .mapping.transfer import transfer as transfer
    from .models.certify import certify as certify
    from .models.families import Family as Family
    from .projection.reader import ReadableModel as ReadableModel
    from .projection.reader import load as load
    from .vocabulary import VocabularySpace as VocabularySpace

_WHERE = {
    "EmbspaceError": "errors",
    "Family": "models.families",
    "Maps": "mapping.maps",
    "ReadableModel": "projection.reader",
    "VocabularySpace": "vocabulary",
    "align": "compare.alignment",
    "alternate": "mapping.alternation.alternating",
    "certify": "models.certify",
    "diff": "compare.difference.changes",
    "evidence": "compare.evidence",
    "exits": "mapping.exiting.exits",
    "finetune": "compare.tuning.finetuning",
    "fit": "mapping.fitting",
    "generate": "mapping.exiting.generating",
    "lens": "mapping.lens.lensing",
    "load": "projection.reader",
    "refine": "mapping.refine",
    "score": "mapping.scoring",
    "stitch": "compare.stitching.sweep",
    "submodules": "mapping.submodules",
    "transfer": "mapping.transfer",
}
__all__ = [
    "EmbspaceError",
    "Family",
    "Maps",
    "ReadableModel",
    "VocabularySpace",
    "__version__",
    "align",
    "alternate",
    "certify",
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
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_WHERE[name]}", __name__)
    value = getattr(module, name, module)  # `evidence` is a module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
