"""The tokenizer beside the weights."""

from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..messages import first_line

FILES = ("tokenizer*", "vocab.*", "*.model")


def load_tokenizer(folder: Path) -> Any | None:
    """The tokenizer of a model folder, or None where there is none. Opens no connection."""
    if not any(next(folder.glob(pattern), None) for pattern in FILES):
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelError(
            f"the tokenizer in {folder} cannot be opened ({first_line(error)})."
        ) from error
