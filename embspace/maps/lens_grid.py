"""Lens: what each layer would say at each position of a prompt, and the model's final answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from ..results import Result, SeveralResults

INSIDE = ".mid"  # 3.mid: inside block 3, after its attention and before its feed-forward


@dataclass(frozen=True)
class Grid:
    """One way of decoding (identity or a kind of map): a row a layer, a column a position.

    rows: "0" … "L", states by number, and "3.mid" inside block 3; ids, p: the k most likely tokens,
    most likely first, and their probabilities; entropy: nats, 0 to ln V; rank: place of the model's
    final answer, 0 the first; tracked_rank, tracked_p: the same of each tracked token.
    """

    rows: tuple[str, ...]
    ids: Int[Tensor, "rows T k"]
    p: Float[Tensor, "rows T k"]
    entropy: Float[Tensor, "rows T"]
    rank: Int[Tensor, "rows T"]
    tracked_rank: Int[Tensor, "rows T tracked"]
    tracked_p: Float[Tensor, "rows T tracked"]

    def settled(self) -> tuple[str | None, ...]:
        """For each position the first row from which the final answer stays on top.

        None where it is not on top in the last row shown.
        """
        tops = (self.rank == 0).tolist()
        found: list[str | None] = []
        for at in range(self.rank.shape[1]):
            first = len(self.rows)
            while first and tops[first - 1][at]:
                first -= 1
            found.append(self.rows[first] if first < len(self.rows) else None)
        return tuple(found)


@dataclass(frozen=True)
class Place:
    """A position of the prompt: the token there, and what the model itself answers in the end.

    index counts from 0 with the special tokens; masked: the mask token stands there; the answer of
    a causal model is its next token, of a masked model the token at this place.
    """

    index: int
    id: int
    label: str
    masked: bool
    answer: int
    answer_label: str


@dataclass(frozen=True)
class Lens(Result):
    """Every layer of a prompt decoded, by the identity and through maps. [DIN] §4

    grids: kind -> grid, all of the same rows and positions; tracked: (id, label) of tracked tokens;
    labels: of every id that occurs.
    """

    places: tuple[Place, ...]
    grids: Mapping[str, Grid]
    tracked: tuple[tuple[int, str], ...]
    labels: Mapping[int, str]
    n_layers: int
    ids: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        first = next(iter(self.grids.values()))
        kinds = ", ".join(self.grids)
        return f"Lens({kinds}: {len(first.rows)} rows × {len(self.places)} positions)"

    def top(self, kind: str, row: int, at: int) -> list[tuple[str, float]]:
        """The most likely tokens of one cell with their probabilities."""
        grid = self.grids[kind]
        ids, p = grid.ids[row, at].tolist(), grid.p[row, at].tolist()
        return [(self.labels[i], share) for i, share in zip(ids, p, strict=True)]

    def rows(self) -> list[dict[str, Any]]:
        """One row a kind, layer, position and token of the top k."""
        return [
            cell | {"place": n + 1, "id": i, "token": self.labels[i], "p": p}
            for kind in self.grids
            for cell, ids, shares in self._cells(kind)
            for n, (i, p) in enumerate(zip(ids, shares, strict=True))
        ]

    def _cells(self, kind: str) -> Any:
        grid = self.grids[kind]
        ids, shares = grid.ids.tolist(), grid.p.tolist()
        entropy, rank = grid.entropy.tolist(), (grid.rank + 1).tolist()
        t_rank, t_p = (grid.tracked_rank + 1).tolist(), grid.tracked_p.tolist()
        for r, row in enumerate(grid.rows):
            for at, place in enumerate(self.places):
                cell = {"kind": kind, "layer": row, "position": place.index, "input": place.label}
                cell |= {"entropy": entropy[r][at], "answer_rank": rank[r][at]}
                for n, (_, label) in enumerate(self.tracked):
                    cell |= {f"rank of {label}": t_rank[r][at][n], f"p of {label}": t_p[r][at][n]}
                yield cell, ids[r][at], shares[r][at]

    def to_dict(self) -> dict[str, Any]:
        """Positions, grids as nested lists [row][position][k], settings, notes and provenance.

        Ranks count from 1 here, as in the tables.
        """
        return {
            "positions": [vars(place) for place in self.places],
            "ids": list(self.ids),
            "n_layers": self.n_layers,
            "tracked": [{"id": i, "token": label} for i, label in self.tracked],
            "grids": {kind: self._grid_dict(grid) for kind, grid in self.grids.items()},
            "settings": self.settings,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    def _grid_dict(self, grid: Grid) -> dict[str, Any]:
        tokens = [[[self.labels[i] for i in cell] for cell in row] for row in grid.ids.tolist()]
        return {
            "layers": list(grid.rows),
            "ids": grid.ids.tolist(),
            "tokens": tokens,
            "p": grid.p.tolist(),
            "entropy": grid.entropy.tolist(),
            "answer_rank": (grid.rank + 1).tolist(),
            "tracked_rank": (grid.tracked_rank + 1).tolist(),
            "tracked_p": grid.tracked_p.tolist(),
            "settled": list(grid.settled()),
        }


@dataclass(frozen=True)
class Lenses(SeveralResults):
    """Several prompts through the same lenses, one `Lens` a prompt, in order."""

    ITEMS = "lenses"
    lenses: tuple[Lens, ...]

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all; `prompt` is a prompt's number, from 0."""
        return [{"prompt": n} | row for n, lens in enumerate(self) for row in lens.rows()]
