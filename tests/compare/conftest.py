"""Variants of saved models, for tests that compare two of them."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def altered(tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Any) -> Callable[..., Path]:
    """`altered(folder, change)`: the same model with `change(model)` done to its weights."""

    def alter(folder: Path, change: Callable[[Any], None], tokenizer: Any = byte_tokenizer) -> Path:
        import torch
        from transformers import AutoModelForCausalLM

        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            model = AutoModelForCausalLM.from_pretrained(folder)
            change(model)
        target = tmp_path_factory.mktemp("altered")
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
        return target

    return alter
