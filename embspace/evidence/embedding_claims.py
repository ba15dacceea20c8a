"""The claims of "Analyzing Transformers in Embedding Space", and the tests over them. [DAR]"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from .claims import Claim, Measured
from .comparisons import (
    Answer,
    Curve,
    LackingError,
    Numbers,
    curve,
    estimates,
    every,
    everywhere,
    is_number,
    on_average,
)

ALPHA = 0.05
MOST = 0.5  # share of a group's layers that must lie on the diagonal, and more, to match "i to i"
SMALL_K = 500  # up to which the paper finds E^T the better inverse
KEYS = ("key–value", "gate–value", "up–value")
READ = ("key", "gate", "up")
INVERSES = {"transpose": "E^T", "pinv": "E^+"}


def related(found: Measured) -> Answer:
    """More keys are related to their own values than to shuffled ones."""
    rows = _rows(found, "kind", KEYS)
    shares = (("related", "share"), ("shuffled", "share_shuffled"))
    return on_average(*(curve(name, rows, key) for name, key in shares), percent=True)


def similar(found: Measured, *, kinds: tuple[str, ...]) -> Answer:
    """Matching vectors share more top tokens than shuffled ones in every layer."""
    return _estimated(_rows(found, "kind", kinds), "matching", "shuffled")


def overlap(found: Measured, *, parts: tuple[str, ...]) -> Answer:
    """Activated vectors name more of a state's top tokens than those of other positions."""
    return _estimated(_rows(found, "part", parts), "aligned", "permuted")


def topic(found: Measured) -> Answer:
    """Some part has a vector nearer to the topic than nearly all random topics have any."""
    best: Numbers = {}
    for vector in found["vectors"]:
        best[vector["part"]] = min(best.get(vector["part"], 1.0), vector["p_best"])
    if not best:
        raise LackingError("this model has no vectors to look up")
    part = min(best, key=lambda name: best[name])
    p = min(1.0, best[part] * len(best))
    ours = f"{' '.join(found['words'])}: nearest {part}, p {p:.3f} for {len(best)} parts"
    return Answer(p < ALPHA, ours, {"p best": best})


def carries_words(found: Measured, *, groups: tuple[str, ...], expected: bool) -> Answer:
    """The words of the task stand out, by the larger of both p-values, or do not."""
    scores = {group: found["words"].get(group) for group in groups}
    p = {name: max(s["p"], s["p_turned"] or 0.0) for name, s in scores.items() if s is not None}
    return every("p", p, (lambda x: x < ALPHA) if expected else (lambda x: x >= ALPHA))


def matches_i_to_i(found: Measured) -> Answer:
    """Each group has most layers on the diagonal, nearer to it than matches drawn at random."""
    holds: dict[str, bool] = {}
    shown: list[str] = []
    for name, match, n_right, n in _matches(found, "vocabulary"):
        holds[name] = match["p"] < ALPHA and n_right > MOST * n
        shown.append(f"{name} {n_right} of {n} (p {match['p']:.3f})")
    wrong = [name for name, right in holds.items() if not right]
    ours = ", ".join(shown) + (f"; not {', '.join(wrong)}" if wrong else "")
    return Answer(not wrong, ours, {"p": _p_values(found, "vocabulary")})


def matches_at_random(found: Measured) -> Answer:
    """No group lies nearer to the diagonal than matches drawn at random."""
    answer = every("p", _p_values(found, "feature"), lambda p: p >= ALPHA)
    shown = [f"{name} {n_right} of {n}" for name, _, n_right, n in _matches(found, "feature")]
    return Answer(answer.holds, f"{answer.ours} ({', '.join(shown)})", answer.numbers)


def diagonals(found: Measured) -> Answer:
    """More layers on the diagonal in vocabulary space than in feature space, on average."""
    spaces = (
        Curve(space, {name: n_right / n for name, _, n_right, n in _matches(found, space)})
        for space in ("vocabulary", "feature")
    )
    return on_average(*spaces, percent=True)


def models_that_reach_70(found: Measured) -> Answer:
    """The paper's share is over models: one model is no share."""
    best = found["best"]["scoring"]
    raise LackingError(
        f"one stitched model ({best['accuracy']:.1%} on held-out texts): the paper counts models "
        "fine-tuned with other seeds"
    )


def above_chance(found: Measured) -> Answer:
    """The lower end of the best cut's accuracy, on texts it was not chosen on, beats chance."""
    best = found["best"]["scoring"]
    ends = (
        Curve(name, {"": value})
        for name, value in (("lower end", best["low"]), ("chance", found["chance"]))
    )
    return everywhere(*ends, percent=True)


def inverse(found: Measured, *, vectors: str) -> Answer:
    """E^T is better at every k up to 500, and E^+ where everything is kept."""
    cosines: dict[str, dict[int, float]] = {name: {} for name in INVERSES}
    for point in found["points"]:
        if point["vectors"] == vectors:
            cosines[point["inverse"]][point["k"]] = point["cosine"]
    lead = {k: cosines["transpose"][k] - cosines["pinv"][k] for k in sorted(cosines["transpose"])}
    if not lead:
        raise LackingError(f"there are no {vectors} vectors")
    last = max(lead)
    small = [lead[k] for k in lead if k <= SMALL_K and k < last]
    if not small:
        raise LackingError("the vocabulary is too small: all entries are kept at every k")
    wrong = any(x < 0 for x in small) or lead[last] > 0
    holds = False if wrong else None if 0 in (*small, lead[last]) else True
    numbers = {name: {str(k): x for k, x in cosines[key].items()} for key, name in INVERSES.items()}
    return Answer(holds, _crossing(lead), numbers)


def _crossing(lead: dict[int, float]) -> str:
    """`E^T better up to k = 300, E^+ from 1,000`: where the better inverse changes."""
    ks = list(lead)
    better = [k for k in ks if lead[k] > 0]
    if better and better == ks[: len(better)] and len(better) < len(ks):
        return f"E^T better up to k = {better[-1]:,}, E^+ from {ks[len(better)]:,}"
    named = ", ".join(f"{k:,}" for k in better) or "no k"
    return f"E^T better at {named} of {ks[0]:,} to {ks[-1]:,}"


def _rows(found: Measured, key: str, wanted: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The layers of some kinds, by layer, and kind where there are several."""
    rows = [row for row in found["layers"] if row[key] in wanted]
    several = len({row[key] for row in rows}) > 1
    return {f"{row[key]} {row['layer']}" if several else str(row["layer"]): row for row in rows}


def _estimated(rows: dict[str, dict[str, Any]], higher: str, lower: str) -> Answer:
    """One estimate over the other in every row."""
    curves = (
        estimates(name, {place: row[name] for place, row in rows.items()})
        for name in (higher, lower)
    )
    return everywhere(*curves)


def _matches(found: Measured, space: str) -> Iterator[tuple[str, dict[str, Any], int, int]]:
    """Group, match, and how many of its matched layers lie on the diagonal."""
    groups = {name: group[space] for name, group in found["groups"].items() if group[space]}
    known = {name: match for name, match in groups.items() if is_number(match["p"])}
    if not known:
        raise LackingError(f"no group has one match in {space} space that chance can be judged by")
    for name, match in known.items():
        n = sum(at is not None for at in match["match"])
        yield name, match, round(match["diagonal"] * n), n


def _p_values(found: Measured, space: str) -> Numbers:
    return {name: match["p"] for name, match, *_ in _matches(found, space)}


_claim = partial(Claim, paper="embedding", figure="", number="")
_ACTIVATED = (
    ("keys", "Activated keys", READ),
    ("values", "Activated values", ("value",)),
    ("w-v", "Activated columns of W_V", ("W_V",)),
    ("w-o", "Activated rows of W_O", ("W_O",)),
)
CLAIMS: tuple[Claim, ...] = (
    _claim(
        id="related",
        step="pairs",
        section="§4.1",
        says="Some keys speak of the same tokens as their values (signed Sim_100 of .15 or more): "
        "more than shuffled pairs do.",
        number="about 5 % of the pairs",
        rule="share of related pairs over that of shuffled ones, on average over layers",
        judge=related,
    ),
    _claim(
        id="topic",
        step="topic",
        section="§4.1",
        says="Vectors that speak of a topic are found by their cosine with the mean embedding of "
        "its words.",
        rule="the nearest vector is nearer than any is to 95 % of random topics of as many words "
        "(p < .05, times the number of parts searched)",
        judge=topic,
    ),
    *(
        _claim(
            id=f"sim-{name}",
            step="pairs",
            section="App. B",
            figure="Fig. 6",
            says=f"Matching vectors of {words} share more of their top 100 tokens than shuffled "
            "ones, in every layer.",
            rule="Sim_100 by size, matching over shuffled, in every layer",
            judge=partial(similar, kinds=kinds),
        )
        for name, words, kinds in (
            ("ff", "keys and values", KEYS),
            ("vo", "W_V and W_O", ("W_V–W_O",)),
            ("qk", "W_Q and W_K", ("W_Q–W_K",)),
        )
    ),
    *(
        _claim(
            id=f"{against}-{name}",
            step=step,
            section=section,
            figure=figure,
            says=f"{words} name top tokens of {state}, more than those activated at other "
            "positions, in every layer.",
            rule="R_k, aligned over permuted, in every layer",
            judge=partial(overlap, parts=parts),
        )
        for against, step, section, figure, state in (
            ("state", "states", "§4.2", "Fig. 2", "the layer's state"),
            ("final", "logits", "App. B.2", "Fig. 5", "the final state"),
        )
        for name, words, parts in _ACTIVATED
    ),
    _claim(
        id="tuned-carry",
        step="diff",
        section="§4.3",
        says="What fine-tuning on sentiment changed in W_Q, W_K, W_V and the keys speaks of "
        "sentiment.",
        number="W_Q, W_K, W_V and K do",
        rule="p < .05 in each group, by both ways of drawing rows",
        judge=partial(
            carries_words, groups=("W_Q", "W_K", "W_V", "K", "K_gate", "K_up"), expected=True
        ),
    ),
    _claim(
        id="tuned-silent",
        step="diff",
        section="§4.3",
        says="What it changed in the values and W_O does not.",
        number="V and W_O do not",
        rule="p >= .05 in each group",
        judge=partial(carries_words, groups=("V", "W_O"), expected=False),
    ),
    _claim(
        id="align-vocabulary",
        step="align",
        section="§5.1",
        figure="alignment of two BERT",
        says="Layers of two training runs match i to i in vocabulary space, in every group.",
        number="i to i (BERT seeds)",
        rule="in each group more than half of the layers on the diagonal, and p < .05 (a match "
        "drawn at random lies as close to it)",
        judge=matches_i_to_i,
    ),
    _claim(
        id="align-feature",
        step="align",
        section="§5.1",
        figure="alignment of two BERT",
        says="In feature space, without the vocabulary, they match at random.",
        number="at random (BERT seeds)",
        rule="p >= .05 in each group",
        judge=matches_at_random,
    ),
    _claim(
        id="align-both",
        step="align",
        section="§5.1",
        figure="alignment of two BERT",
        says="More layers lie on the diagonal in vocabulary space than in feature space.",
        rule="share on the diagonal, on average over groups",
        judge=diagonals,
    ),
    _claim(
        id="stitch-70",
        step="stitch",
        section="§5.2",
        says="In 30 % of models (fine-tuning seeds) a stitched classifier reaches 70 %.",
        number="30 % of models",
        rule="share of models, not of cuts: needs several fine-tuned models",
        judge=models_that_reach_70,
    ),
    _claim(
        id="stitch-chance",
        step="stitch",
        section="§5.2",
        says="Stitching needs no training: the cut that did best on half of the texts is above "
        "chance on the other half.",
        rule="lower end of its 95 % interval over chance",
        judge=above_chance,
    ),
    *(
        _claim(
            id=f"inverse-{name}",
            step="inverse",
            section="App. A",
            figure="Figs. 3–4",
            says=f"E^T brings {words} back better than E^+ where few entries of a row are kept "
            "(k of 10 to 500), and worse where more are.",
            number=number,
            rule="cosine of E^T over that of E^+ at every k up to 500, under it where all are kept",
            judge=partial(inverse, vectors=name),
        )
        for name, words, number in (
            ("normal", "normal vectors", "0.83 against 0.10 at k = 1,000 (GPT-2 medium)"),
            ("values", "feed-forward values", ""),
            ("states", "hidden states", ""),
        )
    ),
)
