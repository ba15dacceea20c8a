"""Bundled samples: small models we trained ourselves, and the writer of the text they learned from.

Nothing heavy is imported here: the writer is loaded when first asked for, the models never.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["SAMPLES", "STYLES", "Sample", "facts", "path", "sentences", "sentiment"]

STYLES = ("reference", "story")
"""The two styles of `sentences`: encyclopedic prose, and talk and tales."""


@dataclass(frozen=True)
class Sample:
    """One bundled model: its name, its architecture's family and what it is for."""

    name: str
    family: str
    description: str


SAMPLES = {
    sample.name: sample
    for sample in (
        Sample("sample-gpt2", "gpt2", "4-layer GPT-2; heads 0.5 and 3.3 hold facts"),
        Sample("sample-gpt2-b", "gpt2", "narrower GPT-2, same tokenizer, other seed"),
        Sample("sample-gpt2-reviews", "gpt2", "sample-gpt2 fine-tuned on film reviews"),
        Sample("sample-bert-a", "bert", "6-layer BERT, first of two seeds with one tokenizer"),
        Sample("sample-bert-b", "bert", "6-layer BERT, second of two seeds with one tokenizer"),
    )
}
"""The bundled models by name."""


def path(name: str) -> Path:
    """Return the folder of the sample `name`; raises KeyError for a name that is not bundled."""
    if name not in SAMPLES:
        raise KeyError(f"no bundled sample {name!r}; expected one of {', '.join(SAMPLES)}")
    return Path(__file__).with_name("samples") / name


def sentences(style: str, n: int, seed: int = 0) -> list[str]:
    """Return `n` different sentences of our own in one of the `STYLES`, equal for equal seeds."""
    from . import generate

    return generate.sentences(style, n, seed)


def sentiment(split: str, n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `n` film reviews of our own as (text, `positive` or `negative`), `train` or `test`."""
    from . import generate

    return generate.sentiment(split, n, seed)


def facts() -> dict[str, list[tuple[str, str]]]:
    """Return the facts the text tells: relation (`country-capital`, ...) -> (left, right) pairs."""
    from . import lexicon

    return lexicon.facts()
