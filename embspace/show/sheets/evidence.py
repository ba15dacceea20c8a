"""How the papers' experiments look: measured figures beside their baselines."""

from ...estimate import Estimate
from ...evidence.concepts import Concept, ConceptVector
from ...evidence.inverse import InverseCheck
from ...evidence.matching_pairs import LayerSimilarity, PairSimilarity
from ...evidence.state_overlap import LayerOverlap, StateOverlap
from ...evidence.trust import GRADES, RULE, HeadTrust, Trust
from ...notation import Circuit
from ..view import Column, Sheet, View, joined, model_name, origin, settings_line, shown
from ..views import sheet

INVERSE_NAMES = {"transpose": "E^T", "pinv": "E^+"}
VECTOR_NAMES = {"normal": "normal vectors", "values": "FF values", "states": "hidden states"}
MOSTLY_COMMON = 0.3  # cosine from which the mean of all tokens is worth a word


def interval(estimate: Estimate, decimals: int = 3) -> str:
    """`0.041 … 0.083`, the ends of a 95 % interval; nothing where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{estimate.low:.{decimals}f} … {estimate.high:.{decimals}f}"


@sheet.register
def _(result: PairSimilarity) -> Sheet:
    settings = result.settings
    k, sample = settings.get("k"), settings.get("sample")
    title = joined(model_name(result.provenance), f"Sim_{k} of matching and of shuffled pairs")
    about = joined(
        "mean with its 95 % interval",
        f"share of related pairs: signed Sim_{k} of at least {settings.get('related', 0):.2f}",
        "all pairs" if sample is None else f"{sample} pairs a layer at most",
        settings_line(settings),
    )
    views = tuple(_similar(kind, rows) for kind, rows in result.kinds().items())
    return Sheet(title, about, views, result.notes + origin(result.provenance))


def _similar(kind: str, layers: tuple[LayerSimilarity, ...]) -> View:
    columns = (
        Column("layer", "number"),
        Column("matching", "text", "value"),
        Column("", "text", "faint", drop=1),
        Column("shuffled", "text", "faint"),
        Column("", "text", "faint", drop=2),
        Column("share", "text", "value"),
        Column("shuffled", "text", "faint"),
    )
    rows = tuple(
        (
            r.layer,
            f"{r.matching.mean:.3f}",
            interval(r.matching),
            f"{r.shuffled.mean:.3f}",
            interval(r.shuffled),
            f"{r.share:.1%}",
            f"{r.share_shuffled:.1%}",
        )
        for r in layers
    )
    return View(columns, rows, title=kind)


@sheet.register
def _(result: InverseCheck) -> Sheet:
    n = result.settings.get("n", {})
    title = joined(model_name(result.provenance), "E^T against E^+ as the inverse of E")
    about = (
        "cosine between X X^T and keep_k(X E) keep_k(X E'^T)^T, which keeps the k entries of a "
        "row that are largest in absolute value; the last k is the whole vocabulary"
    )
    names = dict.fromkeys(point.vectors for point in result.points)
    views = tuple(_kept(result, name, n.get(name)) for name in names)
    return Sheet(title, about, views, result.notes + origin(result.provenance))


def _kept(result: InverseCheck, name: str, n: int | None) -> View:
    columns = (
        Column("k", "number"),
        Column("E^T", "text", "value"),
        Column("E^+", "text", "key"),
    )
    points = [point for point in result.points if point.vectors == name]
    rows = tuple(
        (k, *(f"{result.cosine(name, inverse, k):.3f}" for inverse in ("transpose", "pinv")))
        for k in dict.fromkeys(point.k for point in points)
    )
    return View(columns, rows, title=f"{n} {VECTOR_NAMES[name]}")


@sheet.register
def _(result: Concept) -> Sheet:
    words = " ".join(shown(word) for word in result.words)
    title = joined(model_name(result.provenance), f"vectors nearest to: {words}")
    draws = result.settings.get("draws")
    about = joined(
        "cosine with the mean embedding of " + " ".join(result.tokens),
        f"p: random topics of as many words ({draws}) at least as near to this vector",
        "p best: to any vector of its part",
        settings_line(result.settings),
    )
    views = tuple(_near(result, part) for part in result.n_vectors)
    return Sheet(title, about, views, _shared(result) + origin(result.provenance))


def _shared(result: Concept) -> tuple[str, ...]:
    """A topic that is mostly what all tokens share says little of its own."""
    if result.settings.get("centred"):
        return (f"The mean of all tokens (cosine {result.common:.2f}) is taken from every topic.",)
    if result.common < MOSTLY_COMMON:
        return ()
    return (
        f"The topic's cosine with the mean of all tokens is {result.common:.2f}: vectors near that "
        "mean are near every topic. --centred takes it away.",
    )


def _near(result: Concept, part: str) -> View:
    columns = (
        Column("cosine", "text"),
        Column("p", "text", "faint", drop=1),
        Column("p best", "text"),
        Column("layer", "number"),
        Column("vector", "text"),
        Column("tokens", "token", "key" if part in ("key", "gate", "up") else "value"),
    )
    rows = tuple(_hit(vector) for vector in result.of_part(part))
    mean, high = result.best_random[part]
    title = (
        f"{part}: {result.n_vectors[part]} vectors; random topics' nearest {mean:.3f}, "
        f"95 % of them below {high:.3f}"
    )
    return View(columns, rows, title=title)


def _hit(vector: ConceptVector) -> tuple[object, ...]:
    tokens = " ".join(token.label for token in vector.top)
    numbers = (f"{vector.cosine:.3f}", f"{vector.p:.3f}", f"{vector.p_best:.3f}")
    return (*numbers, vector.layer, vector.where, tokens)


@sheet.register
def _(result: StateOverlap) -> Sheet:
    settings = result.settings
    what = "the same layer's hidden state" if result.against == "state" else "the final state"
    title = joined(
        model_name(result.provenance), f"R_{settings.get('k')} of activated vectors against {what}"
    )
    about = joined(
        f"share of the state's top {settings.get('k')} tokens named by its {settings.get('m')} "
        "most activated vectors (after the nonlinearity); permuted: by those of another position",
        f"{settings.get('n_positions')} positions of {settings.get('n_texts')} texts",
        f"{shown(str(settings.get('text')))} (hash {settings.get('text_hash')})",
        "95 % intervals over texts",
    )
    views = tuple(_overlap(part, rows) for part, rows in result.parts().items())
    return Sheet(title, about, views, result.notes + origin(result.provenance))


def _overlap(part: str, layers: tuple[LayerOverlap, ...]) -> View:
    columns = (
        Column("layer", "number"),
        Column("aligned", "text", "value"),
        Column("", "text", "faint", drop=1),
        Column("permuted", "text", "faint"),
        Column("", "text", "faint", drop=2),
    )
    rows = tuple(
        (
            r.layer,
            f"{r.aligned.mean:.3f}",
            interval(r.aligned),
            f"{r.permuted.mean:.3f}",
            interval(r.permuted),
        )
        for r in layers
    )
    return View(columns, rows, title=part)


@sheet.register
def _(result: Trust) -> Sheet:
    settings = result.settings
    title = joined(model_name(result.provenance), "do heads do what their readings say?")
    about = joined(
        "own: agreement of the reading with the head; heads, tokens: of other heads' readings, "
        "of its reading of other tokens",
        f"{settings.get('n_texts')} texts, {shown(str(settings.get('text')))} "
        f"(hash {settings.get('text_hash')})",
        settings_line(settings),
    )
    circuits: list[Circuit] = [*dict.fromkeys(head.circuit for head in result.heads)]
    views = tuple(_graded(result, circuit) for circuit in circuits)
    return Sheet(title, about, views, (RULE, *result.notes, *origin(result.provenance)))


def _graded(result: Trust, circuit: Circuit) -> View:
    columns = (
        Column("layer", "number"),
        Column("head", "number"),
        Column("grade", "text", "value"),
        Column("own", "text"),
        Column("", "text", "faint", drop=1),
        Column("heads", "text", "faint"),
        *((Column("tokens", "text", "faint"),) if circuit == "vo" else ()),
    )
    rows = tuple(
        (
            h.layer,
            h.head,
            h.grade,
            f"{h.own.mean:.2f}",
            interval(h.own, 2),
            *(_agreement(x) for x in ((h.heads, h.tokens) if circuit == "vo" else (h.heads,))),
        )
        for h in sorted(result.heads, key=_best_first)
        if h.circuit == circuit
    )
    counts = ", ".join(f"{n} {grade}" for grade, n in result.count(circuit).items())
    return View(columns, rows, title=f"W_{circuit.upper()}: {counts}")


def _best_first(head: HeadTrust) -> tuple[int, float]:
    """Heads by grade, those of one grade by how well their reading agrees."""
    return GRADES.index(head.grade), -head.own.mean


def _agreement(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
