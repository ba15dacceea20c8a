"""Whether a fine-tuned model says that it was made of this very base."""

import hashlib
from pathlib import Path

from ..errors import ModelError
from ..weights.model import Model
from .classifier import is_classifier, read_head


def check_origin(base: Model, tuned: Model) -> None:
    """Raise ModelError where the tuned folder records other weights as its base than these.

    A difference from other weights is not what fine-tuning did. Folders that say nothing pass.
    """
    if not is_classifier(tuned.folder):
        return
    record = read_head(tuned).record
    stated = record.get("base_hash"), record.get("base_sha256")
    found = base.provenance["model_hash"], _sha256(base.folder) if stated[1] else None
    if any(s and s != f for s, f in zip(stated, found, strict=True)):
        raise ModelError(
            f"{tuned.name} was fine-tuned from other weights than those of {base.name}: it names "
            f"{str(record.get('base'))[:80]} ({str(stated[0] or stated[1])[:16]}), and these are "
            f"{str(found[0] if stated[0] else found[1])[:16]}."
        )


def _sha256(folder: Path) -> str | None:
    """Of the weights' one file, where there is one."""
    file = folder / "model.safetensors"
    if not file.is_file():
        return None
    digest = hashlib.sha256()
    with file.open("rb") as source:
        for part in iter(lambda: source.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()
