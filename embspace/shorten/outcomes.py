"""What every layer would have answered at every position: all that any early exit depends on."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..live.capture import States
from ..maps.decoding import Head, Lens, rank_of
from ..weights.model import Model


@dataclass(frozen=True)
class Outcomes:
    """One lens at all layers, a row a position, a column a layer l = 0 … L.

    gap: p₁ − p₂ of the lens's prediction, 0 to 1; rank: place of its first token in the model's
    own final order, 0 the first (column L is 0: the model itself).
    """

    gap: Float[Tensor, "n layers"]
    rank: Int[Tensor, "n layers"]
    positions: Int[Tensor, "n"]
    lines: Int[Tensor, "n"]

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def n_layers(self) -> int:
        """L."""
        return self.rank.shape[1] - 1

    def of_lines(self, wanted: set[int]) -> "Outcomes":
        """The rows of some lines."""
        mine = torch.tensor([line in wanted for line in self.lines.tolist()], dtype=torch.bool)
        return self._rows(mine)

    def _rows(self, mine: Bool[Tensor, "n"]) -> "Outcomes":
        return Outcomes(self.gap[mine], self.rank[mine], self.positions[mine], self.lines[mine])


class Watched:
    """Outcomes of several lenses, collected batch by batch; logits exist for a slice of rows."""

    def __init__(self, model: Model, lenses: Mapping[str, Lens]) -> None:
        self.head, self.lenses, self.n_layers = Head(model), dict(lenses), model.n_layers
        self._found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in lenses}
        self._places: list[tuple[Tensor, Tensor]] = []

    def add(self, states: States) -> None:
        """Decode states 0 … L of one batch."""
        with torch.no_grad():
            for part in self.head.slices(len(states)):
                final = self.head(states.layers[self.n_layers][part])
                top = _top(final)
                for name, lens in self.lenses.items():
                    columns = [
                        _outcome(self.head(lens(states.layers[l][part], l)), final)
                        for l in range(self.n_layers)
                    ]
                    columns.append(top)
                    gap, rank = (torch.stack(each, 1) for each in zip(*columns, strict=True))
                    self._found[name].append((gap, rank))
        self._places.append((states.positions, states.lines))

    def outcomes(self) -> dict[str, Outcomes]:
        """All rows so far, of every lens."""
        positions, lines = (torch.cat(each) for each in zip(*self._places, strict=True))
        found: dict[str, Outcomes] = {}
        for name, parts in self._found.items():
            gap, rank = (torch.cat(each) for each in zip(*parts, strict=True))
            found[name] = Outcomes(gap, rank, positions, lines)
        return found


def gap_of(logits: Float[Tensor, "n V"]) -> Float[Tensor, "n"]:
    """p₁ − p₂ of the softmax."""
    first, second = logits.softmax(-1).topk(2, dim=-1).values.unbind(-1)
    return first - second


def _outcome(logits: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
    return gap_of(logits).double().cpu(), rank_of(logits.argmax(-1), final).cpu()


def _top(final: Tensor) -> tuple[Tensor, Tensor]:
    return gap_of(final).double().cpu(), torch.zeros(len(final), dtype=torch.long)
