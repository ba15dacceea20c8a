"""Model folders made hostile, and what the command line must answer them with."""

import json
import struct
from pathlib import Path
from typing import Any

from click.testing import Result
from safetensors.torch import load_file, save_file

INDEX = "model.safetensors.index.json"
ATTENTION = "transformer.h.0.attn.c_attn.weight"
VALUES = "transformer.h.0.mlp.c_proj.weight"


def in_one_line(result: Result, code: int = 1) -> None:
    """The run failed with one sentence of ours, and printed nothing else."""
    assert result.exit_code == code, (result.exit_code, result.output)
    assert "unexpected " not in result.stderr and "Traceback" not in result.stderr, result.stderr
    if code == 1:
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1 and len(result.stderr) < 1000


def edit(folder: Path, file: str, **changes: Any) -> Path:
    """Change keys of a JSON file of a folder."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def with_tensors(folder: Path, **changes: Any) -> Path:
    """Replace tensors of a folder (names with dots go in a dict)."""
    stored = load_file(folder / "model.safetensors") | changes
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def with_header(folder: Path, header: bytes) -> Path:
    """A safetensors file with this header and 64 bytes of data."""
    content = struct.pack("<Q", len(header)) + header + bytes(64)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def entry(offsets: str, shape: str = "[1]") -> bytes:
    """A header of one tensor."""
    return f'{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}'.encode()
