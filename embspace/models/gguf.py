"""GGUF files, through transformers' official loader, converted once into a cached folder."""

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..cache import cache_folder
from ..errors import ModelError
from .messages import first_line


def unpacked(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The cached safetensors twin of a .gguf file, and a note on where its numbers come from.

    Raises ModelError when extra `gguf` is not installed or the file cannot be read.
    """
    stat = path.stat()
    identity = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    target = cache_folder("gguf") / f"{path.stem}-{key}"
    if not (target / "config.json").is_file():
        _convert(path, target)
    return target, (f"Weights dequantised from {path.name} by transformers' GGUF loader.",)


def _convert(path: Path, target: Path) -> None:
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise ModelError(f"reading {path.name} needs {package}: pip install 'embspace[gguf]'.")
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
    try:
        _write(path, work)
        os.replace(work, target)
    except OSError:
        if not (target / "config.json").is_file():  # else another process was first
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from .running import quiet

    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(**source, local_files_only=True)
            model: Any = AutoModelForCausalLM.from_pretrained(
                **source, local_files_only=True, dtype=torch.float32
            )
    except Exception as error:
        reason = first_line(error)
        raise ModelError(
            f"{path.name} cannot be read by transformers' loader: {reason}."
        ) from error
    for attribute in ("hf_quantizer", "is_quantized", "quantization_method"):
        if hasattr(model, attribute):
            delattr(model, attribute)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with quiet():
        model.to(torch.float32).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
