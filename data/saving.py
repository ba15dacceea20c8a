"""Samples on disk: float16 weights, tokenizer, record of the training; replaced in one step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

_FORMAT = {"format": "pt"}


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def half_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the tensors in float16, tied ones once, named as `save_pretrained` names them."""
    seen: dict[int, str] = {}
    kept = {}
    for name, tensor in model.state_dict().items():
        if seen.setdefault(tensor.data_ptr(), name) == name:
            kept[name] = tensor.detach().to(torch.float16).contiguous()
    return kept


def save_sample(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    records: dict[str, Any],
    extra: dict[str, Tensor] | None = None,
) -> None:
    """Write a sample beside its place and move it there, so that no reader meets half a sample."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    made.chmod(0o755)
    model.config.dtype = torch.float16
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(made)
    tokenizer.save_pretrained(made)
    save_file(half_tensors(model) | (extra or {}), made / "model.safetensors", metadata=_FORMAT)
    (made / "model.safetensors").chmod(0o644)
    for name, record in records.items():
        (made / name).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    _replace(made, folder)


def _replace(made: Path, folder: Path) -> None:
    """Put the folder `made` where `folder` is."""
    old = folder.with_name(f".{folder.name}-old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.rename(folder, old)
    os.rename(made, folder)
    shutil.rmtree(old, ignore_errors=True)


def load_weights(model: PreTrainedModel, folder: Path) -> None:
    """Fill `model` with the weights of a sample folder; tied names may be missing."""
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    model.tie_weights()
