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
from ..messages import first_line, quiet

SOURCE = "embspace-source.json"  # in the unpacked folder: what it was made from
POSITIONS = ("rope_freqs", "rope_factors")  # scaled rotary frequencies, which the loader skips
PAGES, PAGE = 64, 4096


def unpacked(path: Path) -> tuple[Path, tuple[str, ...], str]:
    """The cached safetensors twin of a .gguf file, a note on its numbers, and how it stores them.

    Raises ModelError when extra `gguf` is not installed or the file cannot be read.
    """
    target = cache_folder("gguf") / f"{path.stem}-{_key(path)}"
    source = _recorded(target)
    if source is None:
        shutil.rmtree(target, ignore_errors=True)
        _convert(path, target)
        source = _recorded(target) or {}
    stored = source.get("quantisation", "of unknown kind")
    notes = [f"Weights dequantised from {path.name} ({stored}) by transformers' GGUF loader."]
    if source.get("left_out"):
        notes.append(
            f"{path.name} holds {', '.join(source['left_out'])}, which the loader leaves out: the "
            "weights are right, but what the model computes from positions is not quite its own."
        )
    return target, tuple(notes), f"gguf {stored}"


def _key(path: Path) -> str:
    """16 hex digits of where a file lies, its size and time, and evenly spaced pages of it."""
    stat = path.stat()
    digest = hashlib.sha256(f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode())
    with path.open("rb") as file:
        for n in range(PAGES + 1):
            file.seek(max(0, stat.st_size - PAGE) * n // PAGES)
            digest.update(file.read(PAGE))
    return digest.hexdigest()[:16]


def _recorded(folder: Path) -> dict[str, Any] | None:
    """What is said of a folder's source; None where it is not there whole, as it was written."""
    data: Any = read_json(folder / SOURCE)
    try:
        sizes = {name: (folder / name).stat().st_size for name in data["sizes"]}
        whole = bool(sizes) and sizes == data["sizes"] and isinstance(data["quantisation"], str)
        return data if whole and isinstance(data["left_out"], list) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _said(path: Path, config: Any) -> dict[str, Any]:
    """The kinds of the file's tensors, e.g. `F32+Q4_1`, and what of its positions is left out."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        kinds = {tensor.tensor_type.name for tensor in reader.tensors}
        left_out = [tensor.name for tensor in reader.tensors if tensor.name.startswith(POSITIONS)]
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type", "default") == "default":
            scalings = (key for key in reader.fields if key.endswith("rope.scaling.type"))
            left_out += [key for key in scalings if reader.fields[key].contents() != "none"]
        return {"quantisation": "+".join(sorted(kinds)), "left_out": sorted(left_out)}
    except Exception as error:
        raise ModelError(f"{path.name} cannot be read as GGUF: {first_line(error)}.") from error


def _convert(path: Path, target: Path) -> None:
    if find_spec("gguf") is None or find_spec("accelerate") is None:
        raise ModelError(
            f"reading {path.name} needs gguf and accelerate: pip install 'embspace[gguf]'."
        )
    work = None
    try:
        with told(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=unfinished(target.parent), dir=target.parent))
            _write(path, work)
            os.replace(work, target)
    except EmbspaceError:
        if _recorded(target) is None:  # else another process was first
            raise
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)


def _write(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    try:
        with quiet(), _no_bar():
            tokenizer = AutoTokenizer.from_pretrained(**source, local_files_only=True)
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                **source, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
            model, found = loaded
    except Exception as error:
        reason = first_line(error)
        raise ModelError(
            f"{path.name} cannot be read by transformers' loader: {reason}."
        ) from error
    lost = sorted(found.get("missing_keys") or ())
    if lost:  # the loader would go on with random numbers
        raise ModelError(
            f"{path.name} lacks {lost[0]}: the file is one part of several, or incomplete."
        )
    for attribute in ("hf_quantizer", "is_quantized", "quantization_method"):
        if hasattr(model, attribute):
            delattr(model, attribute)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with quiet():
        model.to(torch.float32).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    source = {"file": path.name, "sizes": sizes, **_said(path, model.config)}
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
