"""Which tables each kind of result is shown as."""

import math
from functools import singledispatch
from importlib import import_module
from itertools import zip_longest
from typing import Any

from ..read.circuits import SIDES, CircuitPairs
from ..read.neurons import NeuronTokens
from ..read.related import RelatedPairs
from ..read.token import HeadUse, NeuronUse, TokenReading
from ..read.vectors import Token, VectorTokens
from ..results import Result
from .view import (
    Column,
    Sheet,
    Tone,
    View,
    clipped,
    joined,
    model_name,
    origin,
    settings_line,
    shown,
)

TONES: dict[str, Tone] = {"asks": "asks", "attended to": "attended", "promoted": "promoted"}
SHARED = 12  # shared tokens of a related pair that a table shows
# Result -> the file in `sheets` that registers how it looks, imported when one is shown.
SHEETS: dict[str, str] = {
    "Difference": "tuning",
    "FineTuning": "tuning",
    "Stitching": "tuning",
    "Maps": "maps",
    "KeptMaps": "maps",
    "Scores": "scores",
    "Transfer": "scores",
    "SubmoduleScores": "scores",
    "Exits": "exits",
    "Generation": "exits",
    "Alternation": "alternation",
    "Alignment": "alignment",
    "StateAlignment": "state_alignment",
    "Certificate": "certificate",
    "PairSimilarity": "evidence",
    "Reproduction": "reproduction",
    "InverseCheck": "evidence",
    "Concept": "evidence",
    "StateOverlap": "evidence",
    "Trust": "evidence",
    "Lens": "lens",
    "LensComparison": "lens",
}


@singledispatch
def sheet(result: Any) -> Sheet:
    """The tables of a result, in reading order; any Result can at least be shown row by row."""
    if not isinstance(result, Result):
        raise TypeError(f"{type(result).__name__} is not a result of embspace.")
    topic = SHEETS.get(type(result).__name__)
    if topic:
        import_module(f".sheets.{topic}", __package__)
        if sheet.dispatch(type(result)) is not sheet.dispatch(object):
            return sheet(result)
    rows = result.rows()
    columns = tuple(Column(name, "token") for name in (rows[0] if rows else ()))
    cells = tuple(tuple(row.values()) for row in rows)
    return Sheet(type(result).__name__, "", (View(columns, cells),))


@sheet.register
def _(result: CircuitPairs) -> Sheet:
    title = joined(model_name(result.provenance), f"layer {result.layer} head {result.head}")
    about = joined(extreme(result), settings_line(result.settings | {"distance": None}))
    return Sheet(title, about, (pairs_view(result),), notes(result))


def pairs_view(result: CircuitPairs) -> View:
    """The pairs of one circuit, titled with the circuit and which side is which."""
    first, second = SIDES[result.circuit]
    columns = (
        Column("score", "number"),
        Column("×rms", "number", "faint", drop=1, digits=3),
        Column(first, "token", TONES[first]),
        Column("", "text", "faint", drop=2),
        Column(second, "token", TONES[second]),
    )
    rms = max(result.rms, 1e-30)
    rows = tuple((p.score, p.score / rms, p.source, "→", p.target) for p in result.pairs)
    title = f"{_named(first, result, 'source')} → {_named(second, result, 'target')}"
    distance = result.settings.get("distance")
    apart = "" if distance is None else f" at relative distance {distance}"
    return View(columns, rows, title=f"W_{result.circuit.upper()}: {title}{apart}")


def _named(name: str, result: CircuitPairs, side: str) -> str:
    """A side's name, and the word it was held to."""
    word = result.settings.get(side)
    return f"{name} {shown(str(word))!r}" if word else name


def extreme(result: CircuitPairs) -> str:
    """Which end of the scores a result shows."""
    return "smallest scores" if result.settings.get("smallest") else "largest scores"


def notes(result: CircuitPairs) -> tuple[str, ...]:
    """The model's sentences that concern this circuit, and where the weights are from."""
    return result.notes + origin(result.provenance)


@sheet.register
def _(result: VectorTokens) -> Sheet:
    title = joined(model_name(result.provenance), result.vector)
    return _ends(title, {"": result}, result.settings, result.provenance)


@sheet.register
def _(result: NeuronTokens) -> Sheet:
    name = f"layer {result.layer}{_expert(result.expert)} neuron {result.neuron}"
    title = joined(model_name(result.provenance), name)
    return _ends(title, result.vectors, result.settings, result.provenance)


def _ends(
    title: str, vectors: dict[str, VectorTokens], settings: dict[str, Any], of: dict[str, Any]
) -> Sheet:
    """Vectors side by side: the tokens of their largest scores, then those of their smallest."""
    columns: list[Column] = []
    for name in vectors:
        tone: Tone = "value" if name in ("value", "") else "key"
        columns += [Column(name or "token", "token", tone), Column("score", "number", "faint", 1)]
    tops, bottoms = ([_tokens(getattr(v, end)) for v in vectors.values()] for end in ENDS)
    above, below = (list(zip_longest(*side, fillvalue=(None, None))) for side in (tops, bottoms))
    rows = tuple(tuple(cell for pair in row for cell in pair) for row in (*above, *below))
    lengths = [
        f"{name} length {v.norm:.4g}, rms {v.rms:.3g}".strip() for name, v in vectors.items()
    ]
    about = joined("largest scores, then smallest", settings_line(settings), *lengths)
    gap = frozenset({len(above)}) if len(above) < len(rows) else frozenset()
    return Sheet(title, about, (View(tuple(columns), rows, breaks=gap),), origin(of))


ENDS = ("top", "bottom")


def _tokens(tokens: tuple[Token, ...]) -> list[tuple[str, float]]:
    return [(token.label, token.score) for token in tokens]


@sheet.register
def _(result: RelatedPairs) -> Sheet:
    columns = (
        Column("neuron", "number"),
        Column("key", "text", "key"),
        Column("Sim", "text"),
        Column("shared tokens", "token", "value"),
    )
    rows = tuple((p.neuron, p.key, f"{p.overlap:.2f}", _shared(p.shared)) for p in result.pairs)
    k, least = result.settings["k"], result.settings["overlap"]
    name = f"layer {result.layer}{_expert(result.expert)}"
    title = joined(
        model_name(result.provenance),
        f"{name}: {related_rule(least, k, absolute=result.settings['absolute'])}",
    )
    about = joined("share of neurons: " + shares(result), settings_line(result.settings))
    return Sheet(title, about, (View(columns, rows),), origin(result.provenance))


def related_rule(least: float, k: int, *, absolute: bool) -> str:
    """`keys and values with Sim_100 of at least .15 (27 of 100 tokens shared)`."""
    shared = math.ceil(2 * k * least / (1 + least) - 1e-9)
    by = " by |score|" if absolute else ""
    return (
        f"keys and values with Sim_{k}{by} of at least {least:.2f} ({shared} of {k} tokens shared)"
    )


def shares(result: RelatedPairs) -> str:
    """The share of related pairs of each key set, beside that of shuffled pairs."""
    return ", ".join(
        f"{key} {share:.1%} (shuffled {result.share_shuffled[key]:.1%})"
        for key, share in result.share.items()
    )


def _shared(tokens: tuple[str, ...]) -> str:
    more = f" +{len(tokens) - SHARED}" if len(tokens) > SHARED else ""
    return " ".join(tokens[:SHARED]) + more


def _expert(expert: int | str | None) -> str:
    return "" if expert is None else f" expert {expert}"


@sheet.register
def _(result: TokenReading) -> Sheet:
    title = joined(model_name(result.provenance), f"{clipped(result.token)} (id {result.id})")
    columns = (Column("cosine", "number"), Column("token", "token", "value"))
    neighbours = tuple((token.score, token.label) for token in result.neighbours)
    views = (
        View(columns, neighbours, "neighbours in E"),
        _heads(result.heads),
        _neurons(result.neurons),
    )
    return Sheet(title, settings_line(result.settings), views, origin(result.provenance))


def _heads(uses: tuple[HeadUse, ...]) -> View:
    columns = (
        Column("layer", "number"),
        Column("head", "number"),
        Column("role", "text", "faint"),
        Column("partner", "token", "promoted"),
        Column("score", "number", drop=1),
        Column("×rms", "number", digits=3),
    )
    rows = tuple((u.layer, u.head, u.role, u.partner, u.score, u.strength) for u in uses)
    return View(columns, rows, "heads that use it most, with their strongest partner")


def _neurons(uses: tuple[NeuronUse, ...]) -> View:
    columns = (
        Column("layer", "number"),
        Column("neuron", "number"),
        Column("part", "text", "key"),
        Column("score", "number", drop=1),
        Column("×rms", "number", digits=3),
    )
    rows = tuple((u.layer, _neuron(u), u.kind, u.score, u.strength) for u in uses)
    return View(columns, rows, "neurons that use it most")


def _neuron(use: NeuronUse) -> str:
    return f"{use.neuron}" if use.expert is None else f"{use.expert}:{use.neuron}"
