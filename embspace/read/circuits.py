"""One head's W_QK or W_VO read in vocabulary space: strongest pairs, rows, columns. [DAR] §3."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import index, one_of, positive, whole
from ..errors import EmbspaceError, ModelError
from ..notation import CIRCUITS, INVERSES, NORMS, Circuit, Inverse, Norm
from ..results import ListResult, Record
from ..weights.attention import Attention
from ..weights.model import fold, reading, writing
from ..weights.vocabulary import VocabularySpace, filter_names
from .factors import Factor
from .pairs import TopPairs, top_of_rows, top_pairs

if TYPE_CHECKING:
    from ..weights.model import Model

SIDES = {
    "vo": ("attended to", "promoted"),
    "qk": ("asks", "attended to"),
}


@dataclass(frozen=True)
class Pair(Record):
    """One entry of a circuit in vocabulary space: token ids, float64 score, labels, raw texts."""

    i: int
    j: int
    score: float
    source: str
    target: str
    source_text: str | None
    target_text: str | None


@dataclass(frozen=True)
class CircuitPairs(ListResult):
    """The strongest pairs of one circuit, strongest first; `settings` say how they were found."""

    ITEMS = "pairs"
    layer: int
    head: int
    circuit: Circuit
    pairs: tuple[Pair, ...]
    rms: float  # root mean square of all V × V scores: the yardstick of one score
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair: with the rms that its score is measured by, and how it was found."""
        where = {"layer": self.layer, "head": self.head, "circuit": self.circuit}
        how = {
            "rms": self.rms,
            "norm": self.settings.get("norm", ""),
            "filters": " ".join(self.settings.get("filters", ())),
            "model_hash": self.provenance.get("model_hash", ""),
        }
        return [where | pair.to_dict() | how for pair in self]


class HeadCircuit:
    """W_QK or W_VO of one head as two thin factors; the V × V matrix is never formed.

    score(i, j) = e_i W e_j^T. qk: i asks, j is attended to. vo: i is attended to, j is promoted.
    Scores carry no 1/sqrt(d_h) and no biases. `distance` (rotary models, qk) places the asker
    that many tokens after the attended token. Raises EmbspaceError for settings that do not apply.
    """

    def __init__(
        self,
        model: "Model",
        layer: int,
        head: int,
        circuit: Circuit,
        *,
        norm: Norm = "raw",
        inverse: Inverse = "transpose",
        distance: int | None = None,
    ) -> None:
        one_of(circuit, CIRCUITS, "circuit")
        one_of(norm, NORMS, "norm")
        one_of(inverse, INVERSES, "inverse")
        self.model = model
        self.circuit: Circuit = circuit
        self.norm: Norm = norm
        self.inverse: Inverse = inverse
        self.layer = index(layer, model.n_layers, "layer", error=ModelError)
        self.head = index(head, model.n_heads, "head", error=ModelError)
        self.distance = None if distance is None else whole(distance, "distance")
        if distance is not None and circuit == "vo":
            raise EmbspaceError("a relative distance applies to the QK circuit only.")

    def __repr__(self) -> str:
        return f"HeadCircuit({self.model.name!r}, {self.layer}, {self.head}, {self.circuit!r})"

    @cached_property
    def matrices(self) -> tuple[Float[Tensor, "d d_h"], Float[Tensor, "d d_h"]]:
        """A and B with W = A B^T, norms folded and positions applied as asked."""
        attention = self.model.attention(self.layer)
        kv = attention.kv_head(self.head)
        pair = self._vo(attention, kv) if self.circuit == "vo" else self._qk(attention, kv)
        return pair

    @cached_property
    def factors(self) -> tuple[Factor, Factor]:
        """Both sides in vocabulary space, E' A and E B (E' B for qk)."""
        space = self.model.vocabulary
        left, right = self.matrices
        left = space.back(left, self.inverse)
        right = space.back(right, self.inverse) if self.circuit == "qk" else right
        return Factor(space.table, left.contiguous()), Factor(space.table, right.contiguous())

    def top_pairs(
        self,
        k: int = 30,
        *,
        smallest: bool = False,
        filters: str | Iterable[str] = (),
        exclude_same: bool | Literal["word"] = False,
    ) -> CircuitPairs:
        """Find the k largest scores over all pairs that pass the filters, exactly.

        Args:
            k: how many pairs.
            smallest: the smallest scores instead.
            filters: names of token filters; both tokens of a pair pass all of them.
            exclude_same: True leaves out pairs of a token with itself; "word" also those that are
                one word but for case and the mark of a word's start, as the papers' code does.

        Returns:
            The pairs, strongest first.

        Raises:
            EmbspaceError: k or exclude_same will not do.
            VocabularyError: a filter is unknown, or nothing passes.
        """
        filters = filter_names(filters)
        mask = self.model.vocabulary.mask(filters)
        found = top_pairs(
            *self.factors,
            positive(k),
            smallest=smallest,
            rows=mask,
            columns=mask,
            exclude_same=same_rows(self.model.vocabulary, exclude_same),
        )
        return self._result(found, filters, smallest=smallest, exclude_same=exclude_same)

    def row(self, token: str, k: int = 30, **options: Any) -> CircuitPairs:
        """The strongest targets of one source token (all its one-token spellings), exactly.

        Takes the options of `top_pairs`. Raises VocabularyError where the word is not one token.
        """
        return self._of(token, k, swapped=False, **options)

    def column(self, token: str, k: int = 30, **options: Any) -> CircuitPairs:
        """The strongest sources of one target token (all its one-token spellings), exactly."""
        return self._of(token, k, swapped=True, **options)

    @property
    def notes(self) -> tuple[str, ...]:
        """The model's sentences that concern this circuit."""
        return circuit_notes(self.model, [self.circuit], self.distance)

    @cached_property
    def rms(self) -> float:
        """Root mean square of all V × V scores."""
        return root_mean_squares([self])[0]

    def _of(
        self,
        token: str,
        k: int,
        *,
        swapped: bool,
        smallest: bool = False,
        filters: str | Iterable[str] = (),
        exclude_same: bool | Literal["word"] = False,
    ) -> CircuitPairs:
        space, filters, k = self.model.vocabulary, filter_names(filters), positive(k)
        ids = space.token_ids(token)
        asked, about = self.factors[::-1] if swapped else self.factors
        mask = space.mask(filters)
        same = same_rows(space, exclude_same)
        options = {"smallest": smallest, "columns": mask, "exclude_same": same}
        lists = top_of_rows(asked, about, ids, k, **options)
        i, j, score = (torch.cat([getattr(x, name) for x in lists]) for name in ("i", "j", "score"))
        order = torch.argsort(score, descending=not smallest, stable=True)[:k]
        i, j = (j, i) if swapped else (i, j)
        found = TopPairs(i[order], j[order], score[order])
        side = "target" if swapped else "source"
        return self._result(
            found, filters, smallest=smallest, exclude_same=exclude_same, **{side: token}
        )

    def _vo(self, attention: Attention, kv: int) -> tuple[Tensor, Tensor]:
        read = reading(self.model, self.layer, "attn", self.norm)
        write = writing(self.model, self.layer, "attn", self.norm)
        return fold(attention.W_V[kv].T, read).T, fold(attention.W_O[self.head], write).T

    def _qk(self, attention: Attention, kv: int) -> tuple[Tensor, Tensor]:
        read = reading(self.model, self.layer, "attn", self.norm)
        asks, attended = attention.W_Q[self.head], attention.W_K[kv]
        if self.distance is not None:
            from ..weights.rotary import rotation

            asks = asks @ rotation(self.model, self.layer, self.distance).to(asks)
            attended = attended @ rotation(self.model, self.layer, 0).to(attended)
        return fold(asks.T, read).T, fold(attended.T, read).T

    def _result(self, found: TopPairs, filters: tuple[str, ...], **settings: Any) -> CircuitPairs:
        space = self.model.vocabulary
        pairs = tuple(
            Pair(i, j, score, space.labels[i], space.labels[j], space.texts[i], space.texts[j])
            for i, j, score in zip(
                found.i.tolist(), found.j.tolist(), found.score.tolist(), strict=True
            )
        )
        return CircuitPairs(
            self.layer,
            self.head,
            self.circuit,
            pairs,
            self.rms,
            {"norm": self.norm, "inverse": self.inverse, "distance": self.distance}
            | {"filters": list(filters)}
            | settings,
            self.model.provenance,
            self.notes,
        )


def same_rows(space: VocabularySpace, exclude_same: bool | str) -> bool | Tensor:
    """What `exclude_same` leaves out, as the search takes it; "word" is a number for each word."""
    if isinstance(exclude_same, bool):
        return exclude_same
    one_of(exclude_same, ("word",), "exclude_same")
    return space.word_numbers


def circuit_notes(
    model: "Model", circuits: Sequence[str], distance: int | None = None
) -> tuple[str, ...]:
    """A model's sentences that concern some circuits, W_QK at the distance it is read at."""
    if "qk" not in circuits:
        return tuple(note for note in model.notes if "W_QK" not in note)
    at = f"at relative distance {distance or 0}"
    return tuple(note.replace("at relative distance 0", at) for note in model.notes)


def root_mean_squares(circuits: Sequence[HeadCircuit]) -> list[float]:
    """Root mean square of all V × V scores of each circuit of one model.

    ‖P Q^T‖² = <P^T P, Q^T Q> with P^T P = A^T (E E^T) A, so only d_h × d_h matrices are summed.
    """
    if not circuits:
        return []
    space = circuits[0].model.vocabulary
    sides = [factor.matrix for circuit in circuits for factor in circuit.factors]
    side_by_side = torch.cat(sides, dim=1)
    seen = (space.gram.to(side_by_side) @ side_by_side).split(sides[0].shape[1], dim=1)
    grams = [(a.T @ b).double() for a, b in zip(sides, seen, strict=True)]
    sums = [float((a * b).sum()) for a, b in zip(grams[::2], grams[1::2], strict=True)]
    return [max(total, 0.0) ** 0.5 / len(space) for total in sums]


class Head:
    """One attention head, read in words: `vo`, `qk`, and the single vectors of its matrices."""

    def __init__(self, model: "Model", layer: int, head: int) -> None:
        self.model = model
        self.layer = index(layer, model.n_layers, "layer", error=ModelError)
        self.head = index(head, model.n_heads, "head", error=ModelError)

    def __repr__(self) -> str:
        return f"Head({self.model.name!r}, {self.layer}, {self.head})"

    @property
    def vo(self) -> HeadCircuit:
        """W_VO with raw norms: what the head promotes when it attends to a token."""
        return self.circuit("vo")

    @property
    def qk(self) -> HeadCircuit:
        """W_QK with raw norms: which token attends to which."""
        return self.circuit("qk")

    def circuit(self, circuit: Circuit, **options: Any) -> HeadCircuit:
        """A circuit with `norm`, `inverse` and `distance` as asked."""
        return HeadCircuit(self.model, self.layer, self.head, circuit, **options)
