"""Models of the zoo, built and saved once a session."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from transformers.utils import logging

from . import zoo as builders

logging.disable_progress_bar()


@pytest.fixture(scope="session")
def zoo() -> Callable[[str], Any]:
    """The live model of a name, built once; not to be changed."""
    return cache(builders.build)


@pytest.fixture(scope="session")
def saved(zoo, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with the model of a name, as save_pretrained writes it."""

    @cache
    def save(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name.replace(" ", "-").replace("/", "-"))
        zoo(name).save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def stacked(zoo, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A mixture of experts as transformers 5 holds it in memory: one tensor for all experts."""

    @cache
    def save(name: str) -> Path:
        folder = tmp_path_factory.mktemp("stacked")
        model = zoo(name)
        model.config.save_pretrained(folder)
        weights = {k: v.contiguous() for k, v in model.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return save
