"""Single parameter vectors read in vocabulary space: neurons and sub-heads. [DAR] §3, §4.1."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import index, indices, one_of, positive
from ..errors import EmbspaceError, ModelError
from ..notation import GROUPS, NORMS, Group, Norm
from ..results import ListResult
from ..weights.feed_forward import chosen_expert
from ..weights.model import fold, reading, writing
from ..weights.vocabulary import BUFFER, Token, filter_names

if TYPE_CHECKING:
    from ..weights.model import Model
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


class VectorGroup:
    """n vectors of the stream (n × d) with a name, read lazily; index one to read it alone."""

    def __init__(
        self, model: "Model", name: str, read: Callable[[], Float[Tensor, "n d"]], norm: Norm
    ) -> None:
        self.model, self.name, self.norm, self._read = model, name, norm, read

    @cached_property
    def vectors(self) -> Float[Tensor, "n d"]:
        """All vectors of the group, gains folded in as asked."""
        return self._read()

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
        space = self.model.vocabulary
        mask = space.mask(filters)
        chosen = self.vectors[which]
        high = _tokens(space, *space.top_ids(chosen, k, allowed=mask))
        low = _tokens(space, *space.top_ids(chosen, k, smallest=True, allowed=mask))
        lengths = chosen.double().norm(dim=1).tolist()
        settings = {"norm": self.norm, "filters": list(filters)}
        return [
            VectorTokens(f"{self.name} {n}", length, rms, t, b, settings, self.model.provenance)
            for n, t, b, length, rms in zip(
                which, high, low, lengths, rms_of(space, chosen), strict=True
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
        self, model: "Model", layer: int, expert: int | str | None = None, norm: Norm = "raw"
    ) -> None:
        one_of(norm, NORMS, "norm")
        self.model = model
        self.norm: Norm = norm
        self.layer = index(layer, model.n_layers, "layer", error=ModelError)
        self.expert = chosen_expert(model, self.layer, expert)

    def __repr__(self) -> str:
        expert = "" if self.expert is None else f", expert={self.expert!r}"
        return f"FeedForwardReading({self.model.name!r}, {self.layer}{expert}, norm={self.norm!r})"

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
        gain = writing(self.model, self.layer, "ff", self.norm)
        return self._group("value", lambda: fold(self.weights.values, gain))

    def groups(self) -> dict[str, VectorGroup]:
        """All groups by name, keys first."""
        keys = {"gate": self.gate, "up": self.up} if self.is_gated else {"key": self.up}
        return keys | {"value": self.values}

    def _keys(self, name: str) -> VectorGroup:
        gain = reading(self.model, self.layer, "ff", self.norm)
        shown = name if self.is_gated else "key"
        return self._group(shown, lambda: fold(self.weights.keys[name], gain))

    def _group(self, what: str, read: Callable[[], Tensor]) -> VectorGroup:
        expert = "" if self.expert is None else f" expert {self.expert}"
        return VectorGroup(self.model, f"layer {self.layer}{expert} {what}", read, self.norm)


def sub_heads(
    model: "Model", layer: int, head: int, group: Group, norm: Norm = "raw"
) -> VectorGroup:
    """Single vectors of one head: columns of W_Q, W_K, W_V as d-vectors, rows of W_O (d_h × d)."""
    one_of(group, GROUPS, "group")
    one_of(norm, NORMS, "norm")
    attention = model.attention(layer)
    kv = attention.kv_head(head)

    def read() -> Tensor:
        if group == "o":
            return fold(attention.W_O[head], writing(model, layer, "attn", norm))
        matrix = {
            "q": lambda: attention.W_Q[head],
            "k": lambda: attention.W_K[kv],
            "v": lambda: attention.W_V[kv],
        }[group]()
        return fold(matrix.T, reading(model, layer, "attn", norm))

    return VectorGroup(model, f"layer {layer} head {head} {group}", read, norm)


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
