"""Decode states through the model's whole prediction head and compare with its own final output.

Vocabulary-sized tensors exist for a slice of rows at a time only. Probabilities are over the tokens
that the tokenizer can name: padded rows of the head take no part. [DIN] §4
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import ModelError
from ..live import rebuilt as replay
from ..live.capture import States

if TYPE_CHECKING:
    from ..weights.model import Model
    from .maps import Maps

SLICE = 1 << 25  # numbers of one vocabulary-sized tensor
METRICS = ("rank", "surprisal", "kl")
Lens = Callable[[Tensor, int], Tensor]  # (states of layer l, l) -> states to decode


def why_no_head(model: "Model") -> str | None:
    """Why a model predicts no tokens, or None where it does."""
    if model.has_head:
        return None
    return (
        f"{model.name} has no prediction head, so there is no Precision, Surprisal or KL: maps and "
        "their r² need none."
    )


class Head:
    """A model's prediction head: final norm, transform or projection, matrix, bias, soft cap."""

    def __init__(self, model: "Model") -> None:
        reason = why_no_head(model)
        if reason:
            raise ModelError(reason)
        self.model, self.n_tokens = model, len(model.vocabulary)
        self.rows = max(1, SLICE // self.n_tokens)

    def __call__(
        self, states: Float[Tensor, "n d"], room: Float[Tensor, "n rows"] | None = None
    ) -> Float[Tensor, "n V"]:
        """Logits of the tokens that the tokenizer can name, from states before the final norm.

        `room` is what they are written to, where given.
        """
        return replay.logits(self.model, states, room)[..., : self.n_tokens]

    def room(self, n: int, like: Tensor) -> Float[Tensor, "n rows"]:
        """Room for the logits of n rows, taken once: fresh memory costs as much as the product."""
        return like.new_empty(n, self.model.vocabulary.n_rows)

    def slices(self, n: int) -> Iterator[slice]:
        """Rows to decode at a time."""
        for start in range(0, n, self.rows):
            yield slice(start, min(n, start + self.rows))


@dataclass(frozen=True)
class Outcome:
    """One lens at one layer, a number for each row.

    rank: place of its most likely token in the model's own final order, 0 the first (ties by id);
    surprisal: −log p_model of that token, nats; kl: KL(p_model ‖ p_lens), nats. A row whose logits
    are no numbers names no token: its rank is V, the others are infinite.
    """

    rank: Int[Tensor, "n"]
    surprisal: Float[Tensor, "n"]
    kl: Float[Tensor, "n"]


class Comparison:
    """Lenses beside the model's own final output, fed batch by batch."""

    def __init__(self, model: "Model", lenses: Mapping[str, Lens], layers: Sequence[int]) -> None:
        self.head, self.lenses, self.layers = Head(model), dict(lenses), list(layers)
        self.n_layers = model.n_layers
        self.lines: list[Tensor] = []
        self._found: dict[tuple[str, int], list[Outcome]] = {
            (name, l): [] for name in lenses for l in layers
        }

    def add(self, states: States) -> None:
        """Decode one batch of states 0 … L (all layers compared, and L)."""
        final_states = states.layers[self.n_layers]
        for part in self.head.slices(len(states)):
            final = self.head(final_states[part])
            log_p = final.log_softmax(-1)
            for l in self.layers:
                x = states.layers[l][part]
                for name, lens in self.lenses.items():
                    outcome = outcome_of(self.head(lens(x, l)), final, log_p)
                    self._found[name, l].append(outcome)
        self.lines.append(states.lines)

    def outcome(self, name: str, layer: int) -> Outcome:
        """All rows of one lens at one layer, in the order in which they came."""
        found = self._found[name, layer]
        return Outcome(*(torch.cat([getattr(o, m) for o in found]) for m in METRICS))

    def line_numbers(self) -> Int[Tensor, "n"]:
        """Which line each row is of."""
        return torch.cat(self.lines)


def outcome_of(
    logits: Float[Tensor, "n V"], final: Float[Tensor, "n V"], log_p: Float[Tensor, "n V"]
) -> Outcome:
    """How a lens's logits compare with the model's own; log_p: log-softmax of the latter."""
    rank, surprisal, lost = answered(logits, final, log_p)
    p = log_p.exp()
    gap = (log_p - logits.log_softmax(-1)).masked_fill(p == 0, 0.0)
    return Outcome(
        rank.cpu(),
        surprisal.cpu(),
        (p * gap).sum(1).double().masked_fill(lost, torch.inf).cpu(),
    )


def answered(
    logits: Float[Tensor, "n V"], final: Float[Tensor, "n V"], log_p: Float[Tensor, "n V"]
) -> tuple[Int[Tensor, "n"], Float[Tensor, "n"], Bool[Tensor, "n"]]:
    """Rank and surprisal of the most likely token, as in `Outcome`; which rows name none."""
    top = logits.argmax(-1)
    lost = ~torch.isfinite(logits.gather(1, top[:, None])[:, 0])  # NaN is the largest of all
    surprisal = -log_p.gather(1, top[:, None])[:, 0].double()
    rank = rank_of(top, final).masked_fill(lost, final.shape[1])
    return rank, surprisal.masked_fill(lost, torch.inf), lost


def rank_of(top: Int[Tensor, "n"], final: Float[Tensor, "n V"]) -> Int[Tensor, "n"]:
    """Place of a token in the order of some logits, 0 the first; ties by id."""
    chosen = final.gather(1, top[:, None])
    ids = torch.arange(final.shape[1], device=final.device)
    return ((final > chosen) | ((final == chosen) & (ids < top[:, None]))).sum(1)


def identity(x: Tensor, layer: int) -> Tensor:
    """The logit lens: a state as it is."""
    return x


def through(maps: "Maps") -> Lens:
    """A state through its map to the last layer."""
    return lambda x, layer: maps.apply(x, layer)
