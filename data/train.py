"""Train a sample model again: `python data/train.py sample-gpt2 --real corpus.txt`."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

import click

if not __package__:  # run as a script: make the folder a package, whatever its name
    _HERE = Path(__file__).resolve().parent
    sys.path.insert(0, str(_HERE.parent))
    __package__ = _HERE.name
    __import__(__package__)

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from . import classify, generate, pretrain, tokenizing
from .corpus import read_real, split_real
from .recipes import RECIPES, Recipe

_SAMPLES = Path(__file__).with_name("samples")
_REVIEWS, _REVIEWS_SEED = "sample-gpt2-reviews", 31
_N_OWN_REVIEWS = 1500
_N_BYTE_LEVEL, _N_PIECES = 6000, 900
_PATH = click.Path(exists=True, path_type=Path)


def _tokenizer(recipe: Recipe, out: Path, real: list[str]) -> PreTrainedTokenizerFast:
    """Return the tokenizer of the sibling sample, or train one."""
    if recipe.tokenizer_of:
        here, shipped = out / recipe.tokenizer_of, _SAMPLES / recipe.tokenizer_of
        return AutoTokenizer.from_pretrained(here if here.exists() else shipped)
    if recipe.family == "gpt2":
        return tokenizing.byte_level(_N_BYTE_LEVEL, real, recipe.n_positions)
    return tokenizing.word_piece(_N_PIECES, real, recipe.n_positions)


def _fine_tune(out: Path, reviews: Path | None) -> None:
    """Fine-tune the base sample on our own reviews, and on real ones where given."""
    sets = {
        "train": generate.sentiment("train", _N_OWN_REVIEWS),
        "own_test": generate.sentiment("test", 1000),
    }
    if reviews:
        sets["train"] += classify.read_reviews(reviews / "train")
        sets["real_test"] = classify.read_reviews(reviews / "test")
    base = out / "sample-gpt2"
    classify.make_sample(out / _REVIEWS, base, _REVIEWS_SEED, sets, n_epochs=2, rate=5e-4)


@click.command()
@click.argument("name", type=click.Choice([*RECIPES, _REVIEWS]))
@click.option("--real", type=_PATH, multiple=True, help="Text to mix in: files or folders.")
@click.option("--tokens", type=int, help="Tokens to train on [default: the recipe's].")
@click.option("--out", type=click.Path(path_type=Path), default=_SAMPLES, show_default="samples/")
@click.option("--work", type=click.Path(path_type=Path), help="Where to keep the state.")
@click.option("--resume", is_flag=True, help="Go on from the state in --work.")
@click.option("--reviews", type=_PATH, help="Real reviews: train/ and test/ with pos/ and neg/.")
def main(
    name: str,
    real: tuple[Path, ...],
    tokens: int | None,
    out: Path,
    work: Path | None,
    resume: bool,
    reviews: Path | None,
) -> None:
    """Train the sample NAME from its seed and write it into OUT/NAME."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    if name == _REVIEWS:
        _fine_tune(out, reviews)
        return
    recipe = RECIPES[name] if tokens is None else replace(RECIPES[name], n_tokens=tokens)
    kept, held_out = split_real(read_real(list(real)))
    work = work or out / f".{name}-work"
    state = pretrain.load_state(work) if resume else None
    tokenizer = (
        AutoTokenizer.from_pretrained(out / name) if state else _tokenizer(recipe, out, kept)
    )
    trainer = pretrain.Trainer(recipe, tokenizer, kept)
    if state:
        trainer.restore(state, kept)
    about = {"sample": name, "real_text": [place.name for place in real]}
    pretrain.train(trainer, out / name, work, held_out, about)


if __name__ == "__main__":
    main()
