"""Sentences sampled from a causal model itself, for when there is no corpus."""

from typing import TYPE_CHECKING

import torch

from ..checking import positive
from ..checking import seed as checked_seed
from ..errors import TextError
from .corpus import Corpus
from .running import run

if TYPE_CHECKING:
    from .model import Model

N_TEXTS, N_TOKENS, BATCH = 2000, 48, 64


def sampled(
    model: "Model",
    n: int = N_TEXTS,
    *,
    n_tokens: int = N_TOKENS,
    temperature: float = 1.0,
    seed: int = 0,
) -> Corpus:
    """n texts of up to `n_tokens` tokens, drawn from the model after its own start token.

    Same seed and machine: same texts. Raises TextError for a masked model, or one without a token
    to start from.
    """
    n, n_tokens = positive(n, "n"), positive(n_tokens, "n_tokens")
    tokenizer = model.vocabulary.tokenizer
    if not model.family.causal or not model.has_head:
        raise TextError(f"{model.name} writes no text, so none can be sampled: give --text FILE.")
    start = None
    if tokenizer is not None:
        start = (
            tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        )
    if tokenizer is None or start is None:
        raise TextError(f"{model.name} has no token to start a text from: give --text FILE.")
    module = run(model, attention="fast").module
    texts: list[str] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(checked_seed(seed))
        while len(texts) < n:
            ids = module.generate(
                torch.full((min(BATCH, n - len(texts)), 1), start, device=model.device),
                do_sample=True,
                temperature=temperature,
                top_k=0,
                top_p=1.0,
                max_new_tokens=n_tokens,
                pad_token_id=start,
            )
            texts += tokenizer.batch_decode(ids[:, 1:], skip_special_tokens=True)
    lines = tuple(line for line in (" ".join(t.split()) for t in texts) if line)
    if not lines:
        raise TextError(f"{model.name} sampled nothing but special tokens: give --text FILE.")
    return Corpus(lines, f"sampled from {model.name} (seed {seed})")
