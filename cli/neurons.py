"""The work behind `embspace ff`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .opening import Opening
from .output import Output
from .reading_options import Through
from .terminal import show

if TYPE_CHECKING:
    from embspace.memory import Needs
    from embspace.read.neurons import NeuronTokens
    from embspace.read.reader import ReadableModel
    from embspace.read.reading import Reading
    from embspace.read.related import RelatedPairs
    from embspace.read.vectors import FeedForwardReading

Place = tuple[int, int | str | None]  # layer, expert
WAY_OUT = "read one --layer or --expert at a time, with --dtype float32."
TABLE, LINE = 20, 8  # tokens of each end shown unless --top says otherwise
FEW, MANY = 5, 40  # neurons of a layer shown unless --limit says otherwise


def read_feed_forward(
    opening: Opening,
    output: Output,
    *,
    layer: int | None,
    neuron: int | None,
    expert: str | None,
    related: bool,
    absolute: bool,
    norm: str,
    through: Through,
    **shown: Any,
) -> None:
    """One neuron's table, the sharpest neurons of layers, or related keys and values."""
    from embspace.read.reading import Reading

    if neuron is not None and (layer is None or related):
        raise click.UsageError("--neuron needs --layer, and does not go with --related.")
    if related and (shown["filters"] or shown["limit"] or shown["top"]):
        raise click.UsageError("--related takes none of --filter, --limit and --top.")
    if related and through.is_asked:
        raise click.UsageError("--related compares raw rows of E: it takes no sides.")
    if absolute and not related:
        raise click.UsageError("--absolute goes with --related.")
    if neuron is not None and shown["limit"]:
        raise click.UsageError("--limit goes with many neurons, not with --neuron.")
    passes = 4 if related else 2
    filters = shown["filters"]
    model = opening.open(lambda m: _needs(m, layer, expert, neuron, passes, filters), WAY_OUT)
    places = _places(model, layer, expert)
    if related:
        readings = _Readings(model, places, lambda at: Reading(norm=norm))  # type: ignore[arg-type]
    else:
        through.prepare(model, {at for at, _ in places}, norm=norm)
        readings = _Readings(model, places, lambda at: through.reading(model, at, norm=norm))
    if related:
        _related(output, readings, absolute)
    elif neuron is not None:
        _one(output, readings, neuron, shown["top"] or TABLE, filters)
    else:
        few = shown["limit"] or (FEW if layer is None else MANY)
        _many(output, readings, few, shown["top"] or LINE, filters)


class _Readings:
    """The feed-forward layers or experts asked for, opened one after the other."""

    def __init__(
        self, model: "ReadableModel", places: list[Place], how: "Callable[[int], Reading]"
    ) -> None:
        self.model, self.places, self.how = model, places, how
        self.first = self.open(*places[0])

    def open(self, layer: int, expert: int | str | None) -> "FeedForwardReading":
        """One of them, through the sides asked for."""
        from embspace.read.vectors import FeedForwardReading

        return FeedForwardReading(self.model, layer, expert, reading=self.how(layer))

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> "Iterator[FeedForwardReading]":
        for layer, expert in self.places:
            yield self.open(layer, expert)


def _places(model: "ReadableModel", layer: int | None, expert: str | None) -> list[Place]:
    """Layers and experts; raises EmbspaceError for those that do not exist."""
    if expert is not None:
        asked = int(expert) if expert.isascii() and expert.isdecimal() else expert
        return [(at, asked) for at in (range(model.n_layers) if layer is None else [layer])]
    layers = range(model.n_layers) if layer is None else [layer]
    return [(at, each) for at in layers for each in model.experts(at)]


def _needs(
    model: "ReadableModel",
    layer: int | None,
    expert: str | None,
    neuron: int | None,
    passes: int,
    filters: tuple[str, ...],
) -> "Needs":
    """What the work needs; raises EmbspaceError for what does not exist."""
    from embspace.read.forecast import needs_of_neurons
    from embspace.read.vectors import FeedForwardReading

    places = _places(model, layer, expert)
    FeedForwardReading(model, *places[0])  # refuses a layer or an expert that does not exist
    model.vocabulary.mask(filters)
    return needs_of_neurons(model, len(places), passes=passes, each=None if neuron is None else 1)


def _one(output: Output, readings: _Readings, neuron: int, k: int, filters: Any) -> None:
    from embspace.read.neurons import read_neurons

    found = [r for e in readings for r in read_neurons(e, [neuron], k, filters=filters)]
    output.several("neurons", found)


def _many(output: Output, readings: _Readings, few: int, k: int, filters: Any) -> None:
    from embspace.show.topics.surveys import NeuronLine, heading_of_neurons, noise_of_vectors

    results = _sharpest(readings, few, k, filters)
    n = min(few, len(readings.first.values))
    heading = heading_of_neurons(readings.first, n, filters)
    line = partial(NeuronLine, noise=noise_of_vectors(readings.model.vocabulary, filters))
    output.stream("neurons", results, len(readings) * n, line, heading)


def _sharpest(
    readings: "Iterable[FeedForwardReading]", few: int, k: int, filters: Any
) -> "Iterator[NeuronTokens]":
    from embspace.read.neurons import read_neurons, sharpest

    for reading in readings:
        chosen = sharpest(reading, few, filters=filters)
        yield from read_neurons(reading, chosen, k, filters=filters)


def _related(output: Output, readings: _Readings, absolute: bool) -> None:
    from embspace.read.related import related_pairs
    from embspace.show.topics.surveys import RelatedLine, heading_of_related, summary_of_related

    if len(readings) == 1:
        output.one(related_pairs(readings.first, absolute=absolute))
        return
    seen: list[RelatedPairs] = []
    results = _noted((related_pairs(reading, absolute=absolute) for reading in readings), seen)
    heading = heading_of_related(readings.first, absolute=absolute)
    output.stream("layers", results, len(readings), RelatedLine, heading)
    if output.for_people:
        show(summary_of_related(seen))


def _noted(results: "Iterable[RelatedPairs]", seen: "list[RelatedPairs]") -> Any:
    for result in results:
        seen.append(result)
        yield result
