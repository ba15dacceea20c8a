"""A file that lacks a tensor: transformers would go on with random numbers, and nothing is read."""

import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from embspace.errors import ModelError
from embspace.live.running import run
from embspace.read.reader import load

NAMES = (
    *("gpt2", "llama", "gemma3", "gpt-neox", "phi", "bloom", "opt", "opt 350m", "mpt", "cohere"),
    *("bert", "roberta", "distilbert", "albert", "electra", "mpnet", "modernbert"),
    "gemma3 with vision",
)


def outside_blocks(names: set[str]) -> list[str]:
    """Tensors of no block, and of no part that text does not pass through."""
    beside = re.compile(r"\.\d+\.|pooler|vision|multi_modal")
    return sorted(name for name in names if not beside.search(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_lacks_any_tensor_outside_the_blocks_is_refused(saved, tmp_path, name: str):
    """Position embeddings, norms, projections, biases, the parts of a head."""
    folder = Path(shutil.copytree(saved(name), tmp_path / "lacking"))
    stored = load_file(folder / "model.safetensors")
    run(load(folder))  # whole, it runs
    lost = outside_blocks(set(stored))
    assert len(lost) >= 2
    for one in lost:
        rest = {k: v for k, v in stored.items() if k != one}
        save_file(rest, folder / "model.safetensors", metadata={"format": "pt"})
        try:
            model = load(folder)
            if model.has_head:  # without one it is read as a model that predicts nothing
                run(model)
        except ModelError as error:
            assert "\n" not in str(error)
            continue
        assert not model.has_head, one
        assert any("no prediction head" in note for note in model.notes)


def test_what_text_does_not_pass_through_may_be_missing(saved, tmp_path):
    folder = Path(shutil.copytree(saved("gemma3 with vision"), tmp_path / "text"))
    stored = load_file(folder / "model.safetensors")
    rest = {k: v for k, v in stored.items() if "vision" not in k}
    assert len(rest) < len(stored)
    save_file(rest, folder / "model.safetensors", metadata={"format": "pt"})
    assert run(load(folder)).n_layers == load(folder).n_layers
