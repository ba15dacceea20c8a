"""ReadableModel: a Model whose heads, neurons and tokens answer in words."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..checking import indices, known
from ..errors import EmbspaceError, ModelError
from ..live.from_memory import source_of
from ..live.opening import open_model
from ..live.proved import ProvedModel
from ..notation import Circuit, Group, Inverse, Norm
from ..weights.family import Family
from ..weights.filters import filter_names
from ..weights.model import Model
from ..weights.run_settings import AS_USUAL, RunSettings
from .circuits import CircuitPairs, Head, HeadCircuit
from .default_reading import chosen_reading
from .parallel import circuits_at_once, in_order
from .reading import PAPERS, Reading
from .related import RelatedPairs, related_pairs
from .seen_rows import asked_mask
from .token import TokenReadings, read_token
from .vectors import FeedForwardReading, VectorGroup, sub_heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Heads:
    """All heads of a model: `heads[layer, head]`, or iterate over them in order."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __repr__(self) -> str:
        n_layers, n_heads = self._model.n_layers, self._model.n_heads
        return f"Heads({self._model.name!r}, {n_layers} layers of {n_heads})"

    def __getitem__(self, at: tuple[int, int]) -> Head:
        if not isinstance(at, tuple) or len(at) != 2:
            raise EmbspaceError("a head is found by its layer and number: heads[layer, head].")
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

    def __repr__(self) -> str:
        return f"FeedForwards({self._model.name!r}, {len(self)} layers)"

    def __getitem__(self, at: int | tuple[int, int | str]) -> FeedForwardReading:
        if isinstance(at, tuple) and len(at) != 2:
            raise EmbspaceError("a layer is found by ff[layer], an expert by ff[layer, expert].")
        layer, expert = at if isinstance(at, tuple) else (at, None)
        return FeedForwardReading(self._model, layer, expert)

    def __len__(self) -> int:
        return self._model.n_layers

    def __iter__(self) -> Iterator[FeedForwardReading]:
        for layer in range(len(self)):
            for expert in self._model.experts(layer):
                yield FeedForwardReading(self._model, layer, expert)


class ReadableModel(ProvedModel):
    """A checkpoint's weights in the papers' notation, and what they say in vocabulary space."""

    @property
    def heads(self) -> Heads:
        """Attention heads: `model.heads[21, 7].ov.read().top_pairs(50)`."""
        return Heads(self)

    @property
    def ff(self) -> FeedForwards:
        """Feed-forward layers: `model.ff[23].values[907].top_tokens(30)`."""
        return FeedForwards(self)

    def vectors(
        self, layer: int, head: int, group: Group, *, norm: Norm = "raw", reading: Reading = PAPERS
    ) -> VectorGroup:
        """Single sub-head vectors of W_Q, W_K, W_V or W_O, (d_h × d)."""
        return sub_heads(self, layer, head, group, norm, reading)

    def reading(self, layer: int, **changes: Any) -> Reading:
        """How a layer is read when nobody says otherwise, with some settings of it changed.

        See `embspace.read.default_reading`. `model.heads[3, 1].ov.read(model.reading(3))` is what
        `embspace heads` shows of W_VO of head 3.1.
        """
        return chosen_reading(self, layer, None, changes)

    def token(self, word: str, k: int = 20, **options: Any) -> TokenReadings:
        """Neighbours, heads and neurons of a word, one reading for each one-token spelling."""
        ids = self.vocabulary.token_ids(word)
        return TokenReadings(tuple(read_token(self, i, k=k, **options) for i in ids))

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
        reading: Reading | Callable[[int], Reading] = PAPERS,
        distance: int | None = None,
        **options: Any,
    ) -> Iterator[CircuitPairs]:
        """The strongest pairs of every head in order, some circuits at once, as they are found.

        reading: one for all layers, or what gives a layer's, such as `model.reading`; `norm` and
        `inverse` are changed in it where they are not the usual ones.
        """
        known(options, signature(HeadCircuit.top_pairs).parameters, "survey")
        rows, columns = range(self.n_layers), range(self.n_heads)
        filters = filter_names(options.pop("filters", ()))
        changes: dict[str, Any] = {} if norm == "raw" else {"norm": norm}
        changes |= {} if inverse == "transpose" else {"inverse": inverse}

        def reading_of(layer: int) -> Reading:
            return (reading if isinstance(reading, Reading) else reading(layer)).but(**changes)

        def pairs_of(layer: int, head: int, circuit: Circuit) -> CircuitPairs:
            apart = distance if circuit == "qk" else None
            how = reading_of(layer)
            found = HeadCircuit(self, layer, head, circuit, reading=how, distance=apart)
            return found.top_pairs(k, filters=filters, **options)

        which = list(rows if layers is None else indices(layers, self.n_layers, "layer"))
        mask = asked_mask(self, reading_of(which[0]), filters) if which else None
        jobs = (
            partial(pairs_of, layer, head, circuit)
            for layer in which
            for head in (columns if heads is None else indices(heads, self.n_heads, "head"))
            for circuit in circuits
        )
        at_once = circuits_at_once(self, None if mask is None else int(mask.sum()))
        return in_order(jobs, at_once)


def load(
    model: "str | Path | PreTrainedModel",
    *,
    tokenizer: Any | None = None,
    revision: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    family: Family | None = None,
    run: RunSettings = AS_USUAL,
    check: bool = True,
) -> ReadableModel:
    """Open a model for reading; its weights are read when they are asked for, and not before.

    Args:
        model: A local folder, a `.gguf` file, a bundled sample, an alias (`bert-seed0` …), a Hub
            name, or a live transformers model. Of a live one the folder that it was loaded from is
            read where it holds the same weights; else they are written once to the user's cache.
        tokenizer: Of a live model; the one beside its folder unless given.
        revision: A branch, tag or commit of the Hub.
        dtype: Of the arithmetic, float32 or float64, whatever the file stores.
        device: cpu, cuda or cuda:N.
        trust_remote_code: Whether code that lies beside the weights may run.
        family: Where the parts lie, given by hand for an architecture that is not known.
        run: How forward passes are run: dtype, tokens a batch, device map.
        check: Whether the first number proves the reading by a forward pass, once a model.

    Returns:
        The model, whose `heads`, `ff`, `token` and `vectors` answer in words.

    Raises:
        ModelError: The files are missing, damaged, packed, or of a shape that is not known.
        CertificateError: No known reading rebuilds the model's own outputs.

    Example:
        >>> model = load("sample-gpt2")
        >>> model.n_layers, model.n_heads
        (4, 8)
    """
    source: Any = model
    if not isinstance(model, str | Path):
        source = source_of(model, tokenizer)
    elif tokenizer is not None:
        raise ModelError("tokenizer is that of a live model: a folder or name has its own.")
    return open_model(
        source,
        revision=revision,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        family=family,
        run=run,
        check=check,
        kind=ReadableModel,
    )
