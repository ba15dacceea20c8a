"""The tokenizer beside the weights."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..messages import first_line

FILES = ("tokenizer*", "vocab.*", "*.model")


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> Any | None:
    """The tokenizer of a model folder, or None where there is none. Opens no connection.

    Runs code of the folder only where that is trusted.
    """
    if not any(next(folder.glob(pattern), None) for pattern in FILES):
        return None
    _require_sentencepiece(folder)
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        raise ModelError(
            f"the tokenizer in {folder} cannot be opened ({first_line(error)})."
        ) from error


def _require_sentencepiece(folder: Path) -> None:
    """Raise ModelError where a SentencePiece file is all there is, and cannot be read here.

    transformers would take it for a tiktoken file then, and ask for that library.
    """
    models = sorted(path.name for path in folder.glob("*.model") if path.name != "tiktoken.model")
    if not models or any(next(folder.glob(name), None) for name in ("tokenizer.json", "vocab.*")):
        return
    if not (find_spec("sentencepiece") and _has_protobuf()):
        raise ModelError(
            f"the tokenizer in {folder} is a SentencePiece file ({models[0]}), which needs "
            "sentencepiece and protobuf: pip install 'embspace[sentencepiece]'."
        )


def _has_protobuf() -> bool:
    return bool(find_spec("google") and find_spec("google.protobuf"))
