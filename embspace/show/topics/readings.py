"""How weights read in words look: circuits, vectors, neurons, related neurons, single tokens."""

import math
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from ...read.circuits import SIDES, CircuitPairs
from ...read.neurons import NeuronTokens
from ...read.related import RelatedPairs
from ...read.token import HeadUse, NeuronUse, TokenReading
from ...read.vectors import Token, VectorTokens
from ..report import Column, Report, Table, Tone, number, of_model, report, text, token
from ..wording import clipped, settings_line, shown

TONES: dict[str, Tone] = {"asks": "asks", "attended to": "attended", "promoted": "promoted"}
SHARED = 12  # shared tokens of a related pair that a table shows


@report.register
def _(result: CircuitPairs) -> Report:
    about = (extreme(result.settings), settings_line(result.settings | {"distance": None}))
    return of_model(result, f"layer {result.layer} head {result.head}", about, [_pairs(result)])


def _pairs(result: CircuitPairs) -> Table:
    """The pairs of one circuit, titled with the circuit and which side is which."""
    first, second = SIDES[result.circuit]
    rms = max(result.rms, 1e-30)
    columns = (
        number("score", lambda p: p.score),
        number("×rms", lambda p: p.score / rms, "faint", drop=1, digits=3),
        token(first, lambda p: p.source, TONES[first]),
        text("", lambda p: "→", "faint", drop=2),
        token(second, lambda p: p.target, TONES[second]),
    )
    sides = f"{_named(first, result, 'source')} → {_named(second, result, 'target')}"
    distance = result.settings.get("distance")
    apart = "" if distance is None else f" at relative distance {distance}"
    return Table.of(result.pairs, columns, f"W_{result.circuit.upper()}: {sides}{apart}")


def _named(name: str, result: CircuitPairs, side: str) -> str:
    """A side's name, and the word it was held to."""
    word = result.settings.get(side)
    return f"{name} {shown(word)!r}" if word else name


def extreme(settings: dict[str, Any]) -> str:
    """Which end of the scores a result shows."""
    return "smallest scores" if settings.get("smallest") else "largest scores"


@report.register
def _(result: VectorTokens) -> Report:
    return _both_ends(result, result.vector, {"": result})


@report.register
def _(result: NeuronTokens) -> Report:
    title = f"layer {result.layer}{_expert(result.expert)} neuron {result.neuron}"
    return _both_ends(result, title, result.vectors)


def _both_ends(result: Any, title: str, vectors: dict[str, VectorTokens]) -> Report:
    """Vectors side by side: the tokens of their largest scores, then those of their smallest."""
    columns: list[Column] = []
    for n, name in enumerate(vectors):
        tone: Tone = "value" if name in ("value", "") else "key"
        columns += [
            token(name or "token", lambda row, n=n: row[n] and row[n].label, tone),
            number("score", lambda row, n=n: row[n] and row[n].score, "faint", 1),
        ]
    above = list(zip_longest(*(v.top for v in vectors.values())))
    below = list(zip_longest(*(v.bottom for v in vectors.values())))
    lengths = [
        f"{name} length {v.norm:.4g}, rms {v.rms:.3g}".strip() for name, v in vectors.items()
    ]
    about = ("largest scores, then smallest", settings_line(result.settings), *lengths)
    table = Table.of([*above, *below], columns, breaks=[len(above)] if below else [])
    return of_model(result, title, about, [table])


def _expert(expert: int | str | None) -> str:
    return "" if expert is None else f" expert {expert}"


@report.register
def _(result: RelatedPairs) -> Report:
    columns = (
        number("neuron", lambda p: p.neuron),
        text("key", lambda p: p.key, "key"),
        text("Sim", lambda p: f"{p.overlap:.2f}"),
        token("shared tokens", lambda p: _shared(p.shared), "value"),
    )
    settings = result.settings
    rule = related_rule(settings["overlap"], settings["k"], absolute=settings["absolute"])
    shares = "share of neurons: " + shares_line(result.share, result.share_shuffled)
    title = f"layer {result.layer}{_expert(result.expert)}: {rule}"
    table = Table.of(result.pairs, columns)
    return of_model(result, title, (shares, settings_line(settings)), [table])


def related_rule(least: float, k: int, *, absolute: bool) -> str:
    """`keys and values with Sim_100 of at least .15 (27 of 100 tokens shared)`."""
    shared = math.ceil(2 * k * least / (1 + least) - 1e-9)
    by = " by |score|" if absolute else ""
    return (
        f"keys and values with Sim_{k}{by} of at least {least:.2f} ({shared} of {k} tokens shared)"
    )


def shares_line(share: dict[str, float], shuffled: dict[str, float]) -> str:
    """The share of related pairs of each key set, beside that of shuffled pairs."""
    return ", ".join(f"{key} {x:.1%} (shuffled {shuffled[key]:.1%})" for key, x in share.items())


def _shared(tokens: tuple[str, ...]) -> str:
    more = f" +{len(tokens) - SHARED}" if len(tokens) > SHARED else ""
    return " ".join(tokens[:SHARED]) + more


@report.register
def _(result: TokenReading) -> Report:
    title = f"{clipped(result.token)} (id {result.id})"
    tables = (_neighbours(result.neighbours), _heads(result.heads), _neurons(result.neurons))
    return of_model(result, title, [settings_line(result.settings)], tables)


def _neighbours(tokens: Iterable[Token]) -> Table:
    columns = (
        number("cosine", lambda one: one.score),
        token("token", lambda one: one.label, "value"),
    )
    return Table.of(tokens, columns, "neighbours in E")


_STRENGTH = (
    number("score", lambda use: use.score, drop=1),
    number("×rms", lambda use: use.strength, digits=3),
)


def _heads(uses: Iterable[HeadUse]) -> Table:
    columns = (
        number("layer", lambda use: use.layer),
        number("head", lambda use: use.head),
        text("role", lambda use: use.role, "faint"),
        token("partner", lambda use: use.partner, "promoted"),
        *_STRENGTH,
    )
    return Table.of(uses, columns, "heads that use it most, with their strongest partner")


def _neurons(uses: Iterable[NeuronUse]) -> Table:
    def name(use: NeuronUse) -> str:
        return f"{use.neuron}" if use.expert is None else f"{use.expert}:{use.neuron}"

    columns = (
        number("layer", lambda use: use.layer),
        number("neuron", name),
        text("part", lambda use: use.kind, "key"),
        *_STRENGTH,
    )
    return Table.of(uses, columns, "neurons that use it most")
