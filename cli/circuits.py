"""The work behind `embspace heads`."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .opening import Opening
from .output import Output
from .reading_options import Through, readings_said
from .spelling import tell_spellings
from .terminal import say

if TYPE_CHECKING:
    from embspace.evidence.grades import Grades
    from embspace.memory import Needs
    from embspace.notation import Circuit
    from embspace.read.circuits import CircuitPairs
    from embspace.read.reader import ReadableModel

WAY_OUT = "leave tokens out with --filter words, or use --dtype float32."
TABLE, LINE = 30, 5  # pairs shown unless --top says otherwise


def read_heads(
    opening: Opening,
    output: Output,
    *,
    layer: int | None,
    head: int | None,
    circuit: str,
    top: int | None,
    token: str | None,
    norm: str,
    inverse: str,
    distance: int | None,
    through: "Through",
    exclude_same: bool | None,
    exclude_same_word: bool,
    **search: Any,
) -> None:
    """One head's tables, or a line a circuit over many heads."""
    from embspace.show.topics.surveys import noise_of_pairs

    circuit = "vo" if circuit == "ov" else circuit
    if distance is not None and circuit == "vo":
        raise click.UsageError("--distance applies to the QK circuit only.")
    one = layer is not None and head is not None
    circuits: tuple[Circuit, ...] = ("vo", "qk") if circuit == "both" else (circuit,)  # type: ignore[assignment]
    k = top or (TABLE if one else LINE)

    def needs(model: "ReadableModel") -> "Needs":
        taking = {"rows": through.rows(model, search["filters"]), "plain": through.is_plain(model)}
        return _needs(model, layer, head, len(circuits), token, k, taking)

    model = opening.open(needs, WAY_OUT)
    places = _places(model, layer, head)
    if token is not None:
        tell_spellings(model.vocabulary, token, say)
    layers = sorted({at for at, _ in places})
    through.prepare(model, layers, norm=norm, inverse=inverse)
    readings = {at: through.reading(model, at, norm=norm, inverse=inverse) for at in layers}
    first = readings[layers[0]]
    if exclude_same is None:
        exclude_same = not first.is_plain
    search["exclude_same"] = "word" if exclude_same_word else exclude_same
    how: dict[str, Any] = {"reading": readings.__getitem__, "distance": distance}
    width = model.d_head if first.unit else None
    noise = noise_of_pairs(model.vocabulary, search["filters"], token, width)
    results = _found(model, places, circuits, token, k, how, search)
    plain = first.is_plain and first.inverse == "transpose" and distance is None
    grades = _grades(model, norm) if output.for_people and plain else None
    if one:
        notes = _trust(grades, places[0], circuits)
        output.together("heads", list(results), noise, notes)
        return
    total = len(places) * len(circuits) * (2 if token else 1)
    said = readings_said(readings) | {"distance": distance} | search
    shown = _shown(model, places, circuits, said, noise, grades)
    output.stream("heads", results, total, *shown)


def _places(model: "ReadableModel", layer: int | None, head: int | None) -> list[tuple[int, int]]:
    """The heads asked for; raises EmbspaceError for one that does not exist."""
    model.heads[layer or 0, head or 0]
    layers = range(model.n_layers) if layer is None else [layer]
    heads = range(model.n_heads) if head is None else [head]
    return [(at, h) for at in layers for h in heads]


def _found(
    model: "ReadableModel",
    places: list[tuple[int, int]],
    circuits: "tuple[Circuit, ...]",
    token: str | None,
    k: int,
    how: dict[str, Any],
    search: dict[str, Any],
) -> "Iterator[CircuitPairs]":
    """Each circuit's pairs: over all tokens, or with the token on one side, then on the other."""
    if token is None:
        layers, heads = ({*column} for column in zip(*places, strict=True))
        where = {"layers": sorted(layers), "heads": sorted(heads), "circuits": circuits}
        yield from model.survey(k=k, **where, **how, **search)
        return
    for at, h in places:
        for name in circuits:
            apart = how["distance"] if name == "qk" else None
            circuit = model.heads[at, h].circuit(name, reading=how["reading"](at), distance=apart)
            yield circuit.row(token, k, **search)
            yield circuit.column(token, k, **search)


def _needs(
    model: "ReadableModel",
    layer: int | None,
    head: int | None,
    n_circuits: int,
    token: str | None,
    k: int,
    taking: dict[str, Any],
) -> "Needs":
    """What the work needs; raises EmbspaceError for what does not exist."""
    from embspace.read.forecast import needs_of_circuits, needs_of_rows

    n = len(_places(model, layer, head)) * n_circuits
    if token is not None:
        model.vocabulary.token_ids(token)
        return needs_of_rows(model, 2 * n)
    return needs_of_circuits(model, n, k=k, **taking)


def _shown(
    model: "ReadableModel",
    places: list[tuple[int, int]],
    circuits: "tuple[Circuit, ...]",
    settings: dict[str, Any],
    noise: float,
    grades: "Grades | None",
) -> tuple[Any, Any]:
    """How a line looks, and what stands above the lines."""
    from embspace.show.topics.surveys import PairLine, heading_of_pairs

    line = partial(PairLine, noise=noise, grades=grades)
    return line, heading_of_pairs(model, len(places), circuits, settings, grades)


def _grades(model: "ReadableModel", norm: Any) -> "Grades | None":
    """Grades of these readings that `embspace evidence trust` left, if it was run."""
    from embspace.evidence.grades import recall

    return recall(model, norm)


def _trust(
    grades: "Grades | None", place: tuple[int, int], circuits: "tuple[Circuit, ...]"
) -> tuple[str, ...]:
    """One head's grades as a note."""
    from embspace.show.wording import shown

    if grades is None:
        return ()
    found = [f"W_{c.upper()} {grades.of(*place, c) or 'not measured'}" for c in circuits]
    return (shown(f"{', '.join(found)}; {grades.note()}"),)
