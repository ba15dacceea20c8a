"""One token at a time with early exit: who leaves after which block, and what the caches then hold.

A sequence that leaves after block l runs no later block. So that later tokens can attend to it, the
later blocks j still store its keys and values, from a stand-in for its state j:
    maps       mat_{l→j} x_l through block j's own norm, projections and rotation
    copy       x_l itself through the same
    recompute  nothing skipped: all blocks run, only the answer comes early (exact, saves nothing)
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..live.prediction_head import LiveHead
from ..live.replace import Own
from ..live.row_cache import FilledError, Slots, tensor_of
from ..maps.decoding import Lens
from ..maps.maps import Maps
from .exit_rules import FIRST, threshold
from .outcomes import gap_of

Fill = Literal["maps", "copy", "recompute"]
FILLS: tuple[Fill, ...] = ("maps", "copy", "recompute")


@dataclass(frozen=True)
class Leaving:
    """When a sequence leaves: after `after` blocks, or where p₁ − p₂ passes the threshold of λ."""

    n_layers: int
    after: int | None = None
    lam: float | None = None
    mean_length: float = 1.0
    layers: frozenset[int] = frozenset()  # states at which the confidence rule looks

    @property
    def is_full(self) -> bool:
        """Whether nobody leaves early."""
        return self.after == self.n_layers or (self.after is None and self.lam is None)

    def looks(self, l: int) -> bool:
        """Whether anyone may leave at state l."""
        if self.after is not None:
            return l == self.after
        return self.lam is not None and l >= FIRST and l in self.layers


@dataclass
class Left:
    """Sequences that left after the same block, and their state there."""

    l: int
    rows: list[int]
    states: Float[Tensor, "n d"]


@dataclass
class Step:
    """One token of every sequence of a batch that is not finished."""

    going: list[int]
    positions: list[int]  # of each sequence of the batch
    tokens: dict[int, int] = field(default_factory=dict)
    blocks: dict[int, int] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)


class Stepper:
    """What blocks compute while one token is generated: a `Step` for `Replaced`."""

    def __init__(
        self,
        head: LiveHead,
        lens: Lens,
        leaving: Leaving,
        slots: Slots,
        fill: Fill,
        maps: Maps | None,
    ) -> None:
        self.head, self.lens, self.leaving, self.slots = head, lens, leaving, slots
        self.fill: Fill = fill
        self.maps = maps
        self.step = Step([], [])

    def begin(self, rows: list[int], positions: list[int]) -> Step:
        """Start the next token of some sequences."""
        self.step = Step(list(rows), positions)
        return self.step

    def __call__(self, l: int, x: Float[Tensor, "B 1 d"], own: Own) -> Float[Tensor, "B 1 d"]:
        """The stream after block l, of those who still go on; who is sure leaves."""
        if l == 0 and self.leaving.looks(0):
            self._decide(0, x[:, -1])
        step = self.step
        running = list(step.going)
        if self.fill == "recompute":
            running = sorted([*running, *(row for left in step.left for row in left.rows)])
        else:
            self._store(l, own)
        if not running:
            return x
        rows = tensor_of(running, x.device)
        self.slots.rows = rows if len(running) < len(x) else None
        x = own(x) if len(running) == len(x) else x.index_copy(0, rows, own(x[rows], rows))
        if step.going and (l + 1 == self.leaving.n_layers or self.leaving.looks(l + 1)):
            self._decide(l + 1, x[:, -1])
        return x

    def _decide(self, l: int, states: Float[Tensor, "B d"]) -> None:
        """Who of those that go on answers from state l."""
        step, rule = self.step, self.leaving
        rows = tensor_of(step.going, states.device)
        own = states[rows]
        last = l == rule.n_layers
        what = f"state {l} of prompt {{}}"
        logits = self.head(own if last else self.lens(own, l), what, step.going)
        tokens = logits.argmax(-1).tolist()
        leaves = [True] * len(tokens)
        if not last and rule.lam is not None:
            gaps = gap_of(logits).tolist()
            bars = [threshold(rule.lam, step.positions[r], rule.mean_length) for r in step.going]
            leaves = [gap > bar for gap, bar in zip(gaps, bars, strict=True)]
        self._leave(l, own, tokens, leaves, last)

    def _leave(
        self, l: int, own: Tensor, tokens: list[int], leaves: list[bool], last: bool
    ) -> None:
        step = self.step
        gone = [k for k, leave in enumerate(leaves) if leave]
        for k in gone:
            step.tokens[step.going[k]], step.blocks[step.going[k]] = tokens[k], l
        if gone and not last:
            step.left.append(Left(l, [step.going[k] for k in gone], own[gone]))
        step.going = [row for row, leave in zip(step.going, leaves, strict=True) if not leave]

    def _store(self, j: int, own: Own) -> None:
        """Keys and values of block j for those who left before it."""
        left = self.step.left
        if not left:
            return
        states = torch.cat([self._stand_in(one, j) for one in left])
        rows = tensor_of([row for one in left for row in one.rows], states.device)
        self.slots.rows, self.slots.filling = rows, True
        try:
            own(states[:, None], rows)
        except FilledError:
            pass
        finally:
            self.slots.filling = False

    def _stand_in(self, left: Left, j: int) -> Tensor:
        if self.fill == "copy" or self.maps is None:
            return left.states
        return self.maps.apply(left.states, left.l, j)
