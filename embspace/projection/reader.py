"""ReadableModel: a Model whose heads, neurons and tokens answer in words."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..models.load import load as load_model
from ..models.model import Model
from ..notation import Circuit, Group, Inverse, Norm
from .circuits import CircuitPairs, Head, HeadCircuit
from .related import RelatedPairs, related_pairs
from .token import TokenReading, read_token
from .vectors import FeedForwardReading, VectorGroup, sub_heads


class Heads:
    """All heads of a model: `heads[layer, head]`, or iterate over them in order."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getitem__(self, at: tuple[int, int]) -> Head:
        layer, head = at
        return Head(self._model, layer, head)

    def __len__(self) -> int:
        return self._model.n_layers * self._model.n_heads

    def __iter__(self) -> Iterator[Head]:
        for layer in range(self._model.n_layers):
            for head in range(self._model.n_heads):
                yield self[layer, head]


class FeedForwards:
    """All feed-forward layers of a model: `ff[layer]`, or `ff[layer, expert]` in a mixture."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getitem__(self, at: int | tuple[int, int | str]) -> FeedForwardReading:
        layer, expert = at if isinstance(at, tuple) else (at, None)
        return FeedForwardReading(self._model, layer, expert)

    def __len__(self) -> int:
        return self._model.n_layers

    def __iter__(self) -> Iterator[FeedForwardReading]:
        for layer in range(len(self)):
            for expert in self._model.experts(layer):
                yield FeedForwardReading(self._model, layer, expert)


class ReadableModel(Model):
    """A checkpoint's weights in the papers' notation, and what they say in vocabulary space."""

    @property
    def heads(self) -> Heads:
        """Attention heads: `model.heads[21, 7].vo.top_pairs(50)`."""
        return Heads(self)

    @property
    def ff(self) -> FeedForwards:
        """Feed-forward layers: `model.ff[23].values[907].top_tokens(30)`."""
        return FeedForwards(self)

    def vectors(self, layer: int, head: int, group: Group, *, norm: Norm = "raw") -> VectorGroup:
        """Single sub-head vectors of W_Q, W_K, W_V or W_O, (d_h × d)."""
        return sub_heads(self, layer, head, group, norm)

    def token(self, word: str, k: int = 20, **options: Any) -> list[TokenReading]:
        """Neighbours, heads and neurons of a word, one reading for each one-token spelling."""
        return [read_token(self, i, k=k, **options) for i in self.vocabulary.token_ids(word)]

    def related(self, layer: int, expert: int | str | None = None, **options: Any) -> RelatedPairs:
        """Key-value pairs of a layer that share tokens; see `related_pairs`."""
        return related_pairs(FeedForwardReading(self, layer, expert), **options)

    def survey(
        self,
        *,
        circuits: Iterable[Circuit] = ("vo", "qk"),
        layers: Iterable[int] | None = None,
        heads: Iterable[int] | None = None,
        k: int = 5,
        norm: Norm = "raw",
        inverse: Inverse = "transpose",
        distance: int | None = None,
        **options: Any,
    ) -> Iterator[CircuitPairs]:
        """The strongest pairs of every head, one circuit at a time, as they are found."""
        for layer in range(self.n_layers) if layers is None else layers:
            for head in range(self.n_heads) if heads is None else heads:
                for circuit in circuits:
                    apart = distance if circuit == "qk" else None
                    found = HeadCircuit(
                        self, layer, head, circuit, norm=norm, inverse=inverse, distance=apart
                    )
                    yield found.top_pairs(k, **options)


def load(name: str | Path, **options: Any) -> ReadableModel:
    """Open a model for reading; the same arguments and errors as `embspace.models.load.load`.

    revision: Hub revision; dtype: of the arithmetic; device: cpu or cuda; trust_remote_code:
    False unless asked for; family: paths by hand for an unknown architecture.
    """
    return load_model(name, kind=ReadableModel, **options)
