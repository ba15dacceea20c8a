"""Real pretrained models; each test is skipped with one line where its model is not on disk."""

import os
from pathlib import Path

import pytest

REAL = Path(os.environ.get("EMBSPACE_REAL", Path.home() / ".cache" / "embspace-real"))
SHARED = Path(__file__).resolve().parents[3] / "shared"


def _model(name: str) -> Path:
    folder = REAL / name
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"the real model {name} is not on this machine")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M: Llama family, 9 query heads on 3 key/value heads."""
    return _model("smollm2")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2: a BERT encoder without prediction head."""
    return _model("minilm")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma-3-270M: post-norms, query/key norms, 262,144 tokens."""
    return _model("gemma3")


@pytest.fixture(scope="session")
def mpnet() -> Path:
    """all-mpnet-base-v2: an MPNet encoder without prediction head."""
    return _model("mpnet")


@pytest.fixture(scope="session")
def reference() -> Path:
    """Folder of right answers computed independently in float64."""
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip("the reference answers are not on this machine")
    return folder
