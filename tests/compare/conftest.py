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


@pytest.fixture(scope="session")
def reviews() -> Any:
    """Labelled texts that even a small model tells apart, split three ways."""
    from embspace.compare.tuning.labelled import Labelled, Split

    def side(first: int, n: int) -> Labelled:
        texts = [f"{'good' if i % 2 else 'bad'} film {i}" + " ever" * (i % 4) for i in range(n)]
        named = tuple(f"{text} {first}" for text in texts)
        return Labelled(named, tuple(i % 2 for i in range(n)), ("negative", "positive"))

    return Split(side(0, 24), side(1, 6), side(2, 12), "made up")


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory, tiny_gpt2: Path, reviews: Any) -> Path:
    """The folder of a classifier made from `tiny_gpt2`: two blocks trained for an epoch."""
    import embspace

    out = tmp_path_factory.mktemp("tuned") / "classifier"
    embspace.finetune(embspace.load(tiny_gpt2), reviews, out, blocks=2, epochs=1, batch=8)
    return out
