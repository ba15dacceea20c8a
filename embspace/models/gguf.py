"""GGUF files, through transformers' official loader, converted once into a cached folder."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..cache import cache_folder, read_json, told, unfinished
from ..errors import EmbspaceError, ModelError
from .messages import first_line

SOURCE = "embspace-source.json"  # in the unpacked folder: what it was made from


def unpacked(path: Path) -> tuple[Path, tuple[str, ...], str]:
    """The cached safetensors twin of a .gguf file, a note on its numbers, and how it stores them.

    Raises ModelError when extra `gguf` is not installed or the file cannot be read.
    """
    stat = path.stat()
    identity = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    target = cache_folder("gguf") / f"{path.stem}-{key}"
    stored = _quantisation(target)
    if stored is None:
        shutil.rmtree(target, ignore_errors=True)
        _convert(path, target)
        stored = _quantisation(target) or "of unknown kind"
    note = f"Weights dequantised from {path.name} ({stored}) by transformers' GGUF loader."
    return target, (note,), f"gguf {stored}"


def _quantisation(folder: Path) -> str | None:
    """How the file that a folder was made from stores its numbers; None where nothing says so."""
    data = read_json(folder / SOURCE)
    found = data.get("quantisation") if isinstance(data, dict) else None
    return found if isinstance(found, str) and (folder / "config.json").is_file() else None


def _kinds(path: Path) -> str:
    """The kinds of the file's tensors, e.g. `F32+Q4_1+Q8_0`."""
    from gguf import GGUFReader

    try:
        return "+".join(sorted({tensor.tensor_type.name for tensor in GGUFReader(path).tensors}))
    except Exception as error:
        raise ModelError(f"{path.name} cannot be read as GGUF: {first_line(error)}.") from error


def _convert(path: Path, target: Path) -> None:
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise ModelError(f"reading {path.name} needs {package}: pip install 'embspace[gguf]'.")
    work = None
    try:
        with told(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=unfinished(target.parent), dir=target.parent))
            _write(path, work)
            os.replace(work, target)
    except EmbspaceError:
        if _quantisation(target) is None:  # else another process was first
            raise
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def _write(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from .running import quiet

    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    try:
        with quiet(), _no_bar():
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
    source = {"file": path.name, "quantisation": _kinds(path)}
    (folder / SOURCE).write_text(json.dumps(source) + "\n", encoding="utf8")


@contextmanager
def _no_bar() -> Iterator[None]:
    """The loader draws a bar that none of transformers' settings turns off."""
    loader: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    drawn = loader.tqdm
    loader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        loader.tqdm = drawn
