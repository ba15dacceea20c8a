"""Copies and shards of the small models."""

import shutil
from pathlib import Path

import pytest
import transformers as hf


@pytest.fixture
def copy(tmp_path: Path):
    """A copy of a model folder that may be damaged."""

    def make(folder: Path, name: str = "copy") -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    return make


@pytest.fixture
def sharded(tiny_gpt2: Path, tmp_path: Path) -> Path:
    """The small GPT-2 in a dozen shards."""
    folder = tmp_path / "sharded"
    live = hf.AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    live.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 5
    return folder
