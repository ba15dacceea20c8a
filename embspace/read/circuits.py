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
from ..notation import CIRCUITS, Circuit
from ..results import ListResult, Record
from ..weights.attention import Attention
from ..weights.filters import filter_names
from ..weights.model import fold, reading, writing, writing_gains
from ..weights.vocabulary import VocabularySpace
from .default_reading import chosen_reading
from .factors import Factor
from .pairs import TopPairs, top_of_rows, top_pairs
from .reading import PAPERS, Reading
from .seen_rows import asked_mask, n_asked, thin_factor

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
    that many tokens after the attended token. Through another `reading` e_i and e_j are the rows
    of its sides: vo has a source and a target, qk two sources.

    Raises EmbspaceError for settings that do not apply.

    Example:
        >>> import embspace
        >>> circuit = embspace.load("sample-gpt2").heads[1, 0].ov.read(source="first-mlp")
        >>> len(circuit.top_pairs(3))
        3
    """

    def __init__(
        self,
        model: "Model",
        layer: int,
        head: int,
        circuit: Circuit | Literal["ov"],
        *,
        reading: Reading = PAPERS,
        distance: int | None = None,
        **changes: Any,
    ) -> None:
        circuit = "vo" if circuit == "ov" else circuit
        one_of(circuit, CIRCUITS, "circuit")
        self.model = model
        self.circuit: Circuit = circuit
        self.reading = reading.but(**changes)
        self.layer = index(layer, model.n_layers, "layer", error=ModelError)
        self.head = index(head, model.n_heads, "head", error=ModelError)
        self.distance = None if distance is None else whole(distance, "distance")
        if distance is not None and circuit == "vo":
            raise EmbspaceError("a relative distance applies to the QK circuit only.")

    def __repr__(self) -> str:
        return f"HeadCircuit({self.model.name!r}, {self.layer}, {self.head}, {self.circuit!r})"

    def read(self, reading: Reading | None = None, **changes: Any) -> "HeadCircuit":
        """The same circuit through other sides.

        Args:
            reading: the sides and options; without it, the model's own for this layer
                (`default_reading`).
            changes: fields of `Reading` to change in it.

        Raises:
            TypeError: for a field that `Reading` does not have.
            EmbspaceError: for one that will not do.
        """
        chosen = chosen_reading(self.model, self.layer, reading, changes)
        return HeadCircuit(
            self.model, self.layer, self.head, self.circuit, reading=chosen, distance=self.distance
        )

    @cached_property
    def matrices(self) -> tuple[Float[Tensor, "d d_h"], Float[Tensor, "d d_h"]]:
        """A and B with W = A B^T, norms folded and positions applied as asked."""
        attention = self.model.attention(self.layer)
        kv = attention.kv_head(self.head)
        pair = self._vo(attention, kv) if self.circuit == "vo" else self._qk(attention, kv)
        return pair

    @cached_property
    def factors(self) -> tuple[Factor, Factor]:
        """Both sides in vocabulary space, E' A and E B (E' B for qk); or through other sides."""
        return self.factors_with()

    def factors_with(self, also: Sequence[int] = ()) -> tuple[Factor, Factor]:
        """The factors; `also`: tokens whose rows are there though they do not take part."""
        space, reading = self.model.vocabulary, self.reading
        ends = ("source", "target" if self.circuit == "vo" else "source")
        left, right = (
            space.back(matrix, reading.inverse) if end == "source" else matrix
            for matrix, end in zip(self.matrices, ends, strict=True)
        )
        if reading.is_plain:
            return Factor(space.table, left.contiguous()), Factor(space.table, right.contiguous())
        one, other = (
            thin_factor(self.model, reading, self.layer, end, matrix, also)
            for matrix, end in zip((left, right), ends, strict=True)
        )
        return one, other

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
        mask = asked_mask(self.model, self.reading, filters)
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
        both = self.factors if self.reading.common == "all" else self.factors_with(ids)
        asked, about = both[::-1] if swapped else both
        mask = asked_mask(self.model, self.reading, filters)
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
        read, write = self._gains()
        W_V, W_O = attention.W_V[kv], attention.W_O[self.head]
        after = self.reading.map("target", self.layer, W_O)
        if after is not None:  # the last norm comes after the map, a post-norm before it
            post, final = writing_gains(self.model, self.layer, "attn", self.reading.norm)
            return self._mapped(fold(W_V.T, read).T), fold(fold(W_O, post) @ after, final).T
        return self._mapped(fold(W_V.T, read).T), fold(W_O, write).T

    def _qk(self, attention: Attention, kv: int) -> tuple[Tensor, Tensor]:
        read, _ = self._gains()
        asks, attended = attention.W_Q[self.head], attention.W_K[kv]
        if self.distance is not None:
            from ..weights.rotary import rotation

            asks = asks @ rotation(self.model, self.layer, self.distance).to(asks)
            attended = attended @ rotation(self.model, self.layer, 0).to(attended)
        return self._mapped(fold(asks.T, read).T), self._mapped(fold(attended.T, read).T)

    def _mapped(self, matrix: Tensor) -> Tensor:
        """A matrix that reads, as state 0 meets it where the source goes through a fitted map."""
        before = self.reading.map("source", self.layer, matrix.T)
        return matrix if before is None else before @ matrix

    def _gains(self) -> tuple[Tensor | None, Tensor | None]:
        """Gains to fold into what reads and what writes; the source's own norm brings its gain."""
        norm, model = self.reading.norm, self.model
        read = reading(model, self.layer, "attn", norm)
        write = writing(model, self.layer, "attn", norm)
        return (None if self.reading.reading_norm else read), write

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
            self.reading.settings()
            | {"distance": self.distance, "filters": list(filters)}
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
    if not circuits[0].reading.is_plain:
        return [_rms_of_rows(circuit) for circuit in circuits]
    space = circuits[0].model.vocabulary
    sides = [factor.matrix for circuit in circuits for factor in circuit.factors]
    side_by_side = torch.cat(sides, dim=1)
    seen = (space.gram.to(side_by_side) @ side_by_side).split(sides[0].shape[1], dim=1)
    grams = [(a.T @ b).double() for a, b in zip(sides, seen, strict=True)]
    sums = [float((a * b).sum()) for a, b in zip(grams[::2], grams[1::2], strict=True)]
    return [max(total, 0.0) ** 0.5 / len(space) for total in sums]


def _rms_of_rows(circuit: HeadCircuit) -> float:
    """The same where the rows of both sides are there, of tokens that take part."""
    one, other = (factor.table for factor in circuit.factors)
    total = float(((one.T @ one) * (other.T @ other)).sum())
    return max(total, 0.0) ** 0.5 / n_asked(circuit.model, circuit.reading)


class Head:
    """One attention head, read in words: `ov` (also called `vo`), `qk`, and its single vectors."""

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

    ov = vo  # the field's name of the papers' W_VO

    @property
    def qk(self) -> HeadCircuit:
        """W_QK with raw norms: which token attends to which."""
        return self.circuit("qk")

    def circuit(self, circuit: Circuit | Literal["ov"], **options: Any) -> HeadCircuit:
        """A circuit with a `reading`, or fields of one, and a `distance` as asked."""
        return HeadCircuit(self.model, self.layer, self.head, circuit, **options)
