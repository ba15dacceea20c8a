"""Sentences sampled from a causal model itself, for when there is no text."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..checking import positive
from ..checking import seed as checked_seed
from ..errors import TextError
from ..text.text import Text
from .greedy import ends_of, forward
from .prediction_head import LiveHead
from .recorder import Recorder
from .running import Running, run

if TYPE_CHECKING:
    from ..weights.model import Model

N_TEXTS, N_TOKENS, BATCH = 2000, 48, 64


def sampled(
    model: "Model",
    n: int = N_TEXTS,
    *,
    n_tokens: int = N_TOKENS,
    temperature: float = 1.0,
    seed: int = 0,
) -> Text:
    """n texts of up to `n_tokens` tokens, drawn from the model after its own start token.

    Each token from softmax(logits / temperature) over the tokens that the tokenizer names, whatever
    a generation_config.json asks for. Same seed and machine: same texts. Raises TextError for a
    masked model, or one without a token to start from, StateError where states are not finite.
    """
    n, n_tokens = positive(n, "n"), positive(n_tokens, "n_tokens")
    tokenizer = model.vocabulary.tokenizer
    if not model.family.causal or not model.has_head:
        raise TextError(f"{model.name} writes no text, so none can be sampled: give text=FILE.")
    start = None
    if tokenizer is not None:
        start = (
            tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        )
    if tokenizer is None or start is None:
        raise TextError(f"{model.name} has no token to start a text from: give text=FILE.")
    random = torch.Generator().manual_seed(checked_seed(seed))
    drawing = _Drawing(run(model, attention="fast"), int(start), temperature, random)
    texts: list[str] = []
    while len(texts) < n:
        ids = drawing.batch(min(BATCH, n - len(texts)), n_tokens)
        texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
    lines = tuple(line for line in (" ".join(t.split()) for t in texts) if line)
    if not lines:
        raise TextError(f"{model.name} sampled nothing but special tokens: give text=FILE.")
    return Text(lines, f"sampled from {model.name} (seed {seed})")


class _Drawing:
    """Sequences drawn together, a token of each at a time."""

    def __init__(
        self, running: Running, start: int, temperature: float, random: torch.Generator
    ) -> None:
        self.running, self.start = running, start
        self.temperature, self.random = temperature, random
        self.head = LiveHead(running)
        self.ends = ends_of(running.model)

    def batch(self, n: int, n_tokens: int) -> list[list[int]]:
        """n texts' ids without the start token, each up to the first token that ends it."""
        new, cache = torch.full((n, 1), self.start), None
        found: list[list[int]] = [[] for _ in range(n)]
        going = set(range(n))
        L = self.running.n_layers
        with Recorder(self.running, [L], lambda x: x[:, -1]) as recorder, torch.no_grad():
            for _ in range(n_tokens):
                cache = forward(self.running, new, cache)
                new = self._drawn(recorder.states[L])
                for row in sorted(going):
                    token = int(new[row, 0])
                    found[row].append(token)
                    going -= {row} if token in self.ends else set()
                if not going:
                    break
        return found

    def _drawn(self, states: Tensor) -> Tensor:
        logits = self.head(states, "the last state of sampled text {}").double().cpu()
        return (logits / self.temperature).softmax(-1).multinomial(1, generator=self.random)
