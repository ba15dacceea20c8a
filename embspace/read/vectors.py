"""Single parameter vectors read in vocabulary space: neurons and sub-heads. [DAR] §3, §4.1."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import index, indices, one_of, positive
from ..errors import EmbspaceError, ModelError
from ..notation import GROUPS, Group, Norm
from ..results import ListResult
from ..weights.feed_forward import chosen_expert
from ..weights.filters import filter_names
from ..weights.model import fold, writing, writing_gains
from ..weights.model import reading as gain_read
from ..weights.vocabulary import BUFFER, Token
from .default_reading import chosen_reading
from .reading import PAPERS, Reading
from .seen_rows import asked_mask, n_asked, seen_rows, seen_space

if TYPE_CHECKING:
    from ..weights.model import Model, Part
    from ..weights.vocabulary import VocabularySpace


@dataclass(frozen=True)
class VectorTokens(ListResult):
    """Both ends of one vector's projection x E: its largest scores (the list), its smallest."""

    ITEMS = "top"
    vector: str  # e.g. "layer 3 value 907"
    norm: float  # Euclidean length of the vector
    rms: float  # root mean square of all V scores: the yardstick of one score
    top: tuple[Token, ...]
    bottom: tuple[Token, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """|strongest score| over the rms of all scores."""
        ends = (*self.top[:1], *self.bottom[:1])
        return max((abs(token.score) for token in ends), default=0.0) / max(self.rms, 1e-30)

    def rows(self) -> list[dict[str, Any]]:
        """One row a token, with the end it stands at."""
        ends = (("top", self.top), ("bottom", self.bottom))
        return [
            {"vector": self.vector, "end": end} | token.to_dict()
            for end, tokens in ends
            for token in tokens
        ]


@dataclass(frozen=True)
class Place:
    """Where vectors lie: the layer, its part, and whether they read the stream or write to it."""

    layer: int
    part: "Part"
    reads: bool


class VectorGroup:
    """n vectors of the stream (n × d) with a name, read lazily; index one to read it alone."""

    def __init__(
        self,
        model: "Model",
        name: str,
        place: Place,
        make: Callable[[Reading], Float[Tensor, "n d"]],
        reading: Reading = PAPERS,
    ) -> None:
        self.model, self.name, self.place, self.reading = model, name, place, reading
        self._make = make

    def read(self, reading: Reading | None = None, **changes: Any) -> "VectorGroup":
        """The same vectors through another side: a source for keys, a target for values.

        Args:
            reading: without it, the model's own for this layer (`default_reading`).
            changes: fields of `Reading` to change in it.
        """
        chosen = chosen_reading(self.model, self.place.layer, reading, changes)
        return VectorGroup(self.model, self.name, self.place, self._make, chosen)

    @property
    def norm(self) -> Norm:
        """Whether the norms' gains are folded in."""
        return self.reading.norm

    @cached_property
    def vectors(self) -> Float[Tensor, "n d"]:
        """All vectors of the group, gains and maps folded in as asked."""
        made, layer, reading = self._make(self.reading), self.place.layer, self.reading
        if self.place.reads:
            before = reading.map("source", layer, made)
            return made if before is None else made @ before.T
        after = reading.map("target", layer, made)
        if after is None:
            return fold(made, writing(self.model, layer, self.place.part, reading.norm))
        post, final = writing_gains(self.model, layer, self.place.part, reading.norm)
        return fold(fold(made, post) @ after, final)

    @cached_property
    def space(self) -> "VocabularySpace":
        """The vocabulary with the rows that these vectors are read with."""
        end = "source" if self.place.reads else "target"
        return seen_space(self.model, self.reading, self.place.layer, end, self.place.part)

    def rows(self, ids: Sequence[int]) -> Float[Tensor, "n d"]:
        """The rows that these vectors meet for some tokens, whether they take part or not."""
        end, at = "source" if self.place.reads else "target", self.place
        return seen_rows(self.model, self.reading, at.layer, end, at.part, ids)

    def rms(self, vectors: Float[Tensor, "n d"]) -> list[float]:
        """Root mean square of each vector's scores, of the tokens that take part."""
        found = rms_of(self.space, vectors)
        if self.reading.common == "all":
            return found
        scale = (len(self.space) / n_asked(self.model, self.reading)) ** 0.5
        return [each * scale for each in found]

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, n: int) -> "Vector":
        return Vector(self, index(n, len(self), self.name))

    def __repr__(self) -> str:
        return f"VectorGroup({self.name!r}, n={len(self)}, d={self.vectors.shape[1]})"

    def top_tokens(
        self,
        k: int = 30,
        *,
        only: Iterable[int] | None = None,
        filters: str | Iterable[str] = (),
    ) -> list[VectorTokens]:
        """Both ends of x E for every vector (or those listed), exactly, ties by id."""
        k, filters = positive(k), filter_names(filters)
        which = list(range(len(self)))
        which = which if only is None else indices(only, len(self), self.name)
        space, mask = self.space, asked_mask(self.model, self.reading, filters)
        chosen = self.vectors[which]
        high = _tokens(space, *space.top_ids(chosen, k, allowed=mask))
        low = _tokens(space, *space.top_ids(chosen, k, smallest=True, allowed=mask))
        lengths = chosen.double().norm(dim=1).tolist()
        settings = vector_settings(self.reading) | {"filters": list(filters)}
        return [
            VectorTokens(f"{self.name} {n}", length, rms, t, b, settings, self.model.provenance)
            for n, t, b, length, rms in zip(
                which, high, low, lengths, self.rms(chosen), strict=True
            )
        ]


class Vector:
    """One vector of a group."""

    def __init__(self, group: VectorGroup, n: int) -> None:
        self.group, self.n = group, n

    def __repr__(self) -> str:
        return f"Vector({self.group.name} {self.n}, d={self.group.model.d})"

    @property
    def vector(self) -> Float[Tensor, "d"]:
        """The vector itself."""
        return self.group.vectors[self.n]

    def top_tokens(self, k: int = 30, **options: Any) -> VectorTokens:
        """Both ends of x E, exactly; `filters` as in VocabularySpace.mask."""
        return self.group.top_tokens(k, only=[self.n], **options)[0]


class FeedForwardReading:
    """Keys and values of one feed-forward layer or expert, read in words.

    `gate` exists where the layer is gated; `keys` is short for `up` where it is not.
    """

    def __init__(
        self,
        model: "Model",
        layer: int,
        expert: int | str | None = None,
        norm: Norm | None = None,
        reading: Reading = PAPERS,
    ) -> None:
        self.model = model
        self.reading = reading if norm is None else reading.but(norm=norm)
        self.layer = index(layer, model.n_layers, "layer", error=ModelError)
        self.expert = chosen_expert(model, self.layer, expert)

    def __repr__(self) -> str:
        expert = "" if self.expert is None else f", expert={self.expert!r}"
        return f"FeedForwardReading({self.model.name!r}, {self.layer}{expert}, norm={self.norm!r})"

    @property
    def norm(self) -> Norm:
        """Whether the norms' gains are folded in."""
        return self.reading.norm

    def read(self, reading: Reading | None = None, **changes: Any) -> "FeedForwardReading":
        """The same layer through other sides; without a reading, the model's own for this layer."""
        chosen = chosen_reading(self.model, self.layer, reading, changes)
        return FeedForwardReading(self.model, self.layer, self.expert, reading=chosen)

    @cached_property
    def weights(self):
        """The matrices themselves (FeedForward)."""
        return self.model.feed_forward(self.layer, self.expert)

    @property
    def is_gated(self) -> bool:
        """Whether there are two sets of keys."""
        return "gate" in self.weights.keys

    @cached_property
    def up(self) -> VectorGroup:
        """The keys that meet the input (the ungated half where the layer is gated)."""
        return self._keys("up")

    @cached_property
    def gate(self) -> VectorGroup:
        """The keys whose product passes the activation. Raises EmbspaceError if there are none."""
        if not self.is_gated:
            raise EmbspaceError(f"layer {self.layer} has no gate: use keys.")
        return self._keys("gate")

    @property
    def keys(self) -> VectorGroup:
        """The keys of an ungated layer. Raises EmbspaceError where there are two sets."""
        if self.is_gated:
            raise EmbspaceError(f"layer {self.layer} is gated: use gate and up instead of keys.")
        return self.up

    @cached_property
    def values(self) -> VectorGroup:
        """The rows that are added to the stream."""
        return self._group("value", False, lambda _: self.weights.values)

    def groups(self) -> dict[str, VectorGroup]:
        """All groups by name, keys first."""
        keys = {"gate": self.gate, "up": self.up} if self.is_gated else {"key": self.up}
        return keys | {"value": self.values}

    def _keys(self, name: str) -> VectorGroup:
        shown = name if self.is_gated else "key"

        def make(how: Reading) -> Tensor:
            return fold(self.weights.keys[name], reading_gain_of(self.model, self.layer, "ff", how))

        return self._group(shown, True, make)

    def _group(self, what: str, reads: bool, make: Callable[[Reading], Tensor]) -> VectorGroup:
        expert = "" if self.expert is None else f" expert {self.expert}"
        name, place = f"layer {self.layer}{expert} {what}", Place(self.layer, "ff", reads)
        return VectorGroup(self.model, name, place, make, self.reading)


def sub_heads(
    model: "Model",
    layer: int,
    head: int,
    group: Group,
    norm: Norm | None = None,
    reading: Reading = PAPERS,
) -> VectorGroup:
    """Single vectors of one head: columns of W_Q, W_K, W_V as d-vectors, rows of W_O (d_h × d)."""
    one_of(group, GROUPS, "group")
    attention = model.attention(layer)
    kv = attention.kv_head(head)

    def make(how: Reading) -> Tensor:
        if group == "o":
            return attention.W_O[head]
        matrix = {
            "q": lambda: attention.W_Q[head],
            "k": lambda: attention.W_K[kv],
            "v": lambda: attention.W_V[kv],
        }[group]()
        return fold(matrix.T, reading_gain_of(model, layer, "attn", how))

    how = reading if norm is None else reading.but(norm=norm)
    place = Place(layer, "attn", group != "o")
    return VectorGroup(model, f"layer {layer} head {head} {group}", place, make, how)


def reading_gain_of(model: "Model", layer: int, part: "Part", how: Reading) -> Tensor | None:
    """The gain to fold into weights that read; None where the source rows bring it with them."""
    gain = gain_read(model, layer, part, how.norm)
    return None if how.reading_norm else gain


def vector_settings(reading: Reading) -> dict[str, Any]:
    """What a result of single vectors records of its reading; no inverse is taken of them."""
    return {name: value for name, value in reading.settings().items() if name != "inverse"}


def rms_of(space: "VocabularySpace", vectors: Float[Tensor, "n d"]) -> list[float]:
    """Root mean square of all V scores of each vector, in float64."""
    x = vectors.double()
    if len(x) >= space.d:  # many vectors: through the d × d sums
        return (
            ((x @ space.gram.to(x.device)) * x).sum(1).clamp_min(0).div(len(space)).sqrt().tolist()
        )
    step = max(1, BUFFER // (8 * len(space)))
    squares = [space.project(part).square().mean(dim=1) for part in x.split(step)]
    return torch.cat(squares).sqrt().tolist() if squares else []


def _tokens(space, ids: Tensor, scores: Tensor) -> list[tuple[Token, ...]]:
    return [
        tuple(space.token(i, s) for i, s in zip(row, score_row, strict=True))
        for row, score_row in zip(ids.tolist(), scores.tolist(), strict=True)
    ]
