"""The claims of "Jump to Conclusions", each a sentence and a test over what was measured. [DIN]"""

from functools import partial
from typing import Any

from .claims import Claim, Measured
from .comparisons import Answer, Curve, LackingError, curve, everywhere, on_average, together

EARLY = 0.5  # share of the depth, and of the positions, that "early" and "often" mean here
LAYER_7 = 7 / 24  # the paper's layer 7, of GPT-2's 24


def r2(found: Measured) -> Answer:
    """Mat comes closer than id for every pair of layers."""
    each = found["r2"]
    return everywhere(*(Curve(kind, _known(each.get(kind, {}))) for kind in ("mat", "id")))


def precision(found: Measured, *, k: int) -> Answer:
    """Precision@k of mat is higher than that of id at every layer."""
    return everywhere(*_mat_and_id(found, f"precision@{k}"), percent=True)


def surprisal(found: Measured) -> Answer:
    """Surprisal of mat is lower than that of id at every layer."""
    return everywhere(*_mat_and_id(found, "surprisal"), smaller=True)


def early(found: Measured) -> Answer:
    """At half the depth, mat's answer is often among the model's first ten."""
    mat, other = (one.values for one in _mat_and_id(found, "precision@10"))
    if not mat or not other:
        raise LackingError("this model has no scores by layer")
    middle = list(mat)[len(mat) // 2]
    ours = f"mat {mat[middle]:.1%}, id {other[middle]:.1%} at layer {middle}"
    numbers = {"mat": {middle: mat[middle]}, "id": {middle: other[middle]}}
    return Answer(mat[middle] >= EARLY, ours, numbers)


def transfer(found: Measured) -> Answer:
    """Maps fitted on the other text are better than id at every layer."""
    scores = {
        (on, layer): row
        for fitted, by_text in found["scores"].items()
        for on, layers in by_text.items()
        if fitted != on
        for layer, row in layers.items()
    }
    other = {f"{on} {layer}": row for (on, layer), row in scores.items()}
    same = {f"{on} {l}": row for on, layers in found["id"].items() for l, row in layers.items()}
    answer = everywhere(
        curve("mat of the other text", other, "precision@1"),
        curve("id", same, "precision@1"),
        percent=True,
    )
    changes = [f"{100 * each['precision@1']:+.1f}" for each in found["change"].values()]
    ours = f"{answer.ours}; change of Precision@1 {', '.join(changes)} points"
    return Answer(answer.holds, ours, answer.numbers, answer.close)


def linear_part(found: Measured, *, tolerant: str, other: str) -> Answer:
    """One linear part keeps more answers than another, on average over first blocks."""
    return on_average(_part(found, tolerant), _part(found, other), percent=True)


def parts_and_one_map(found: Measured) -> Answer:
    """From 7/24 of the depth on, each linear part keeps more answers than one map for all."""
    whole = _part(found, "blocks")
    first = LAYER_7 * (1 + max(int(block) for each in found["r2"].values() for block in each))
    late = _late(whole, first)
    return together(
        everywhere(_late(_part(found, name), first), late, percent=True) for name in NAMES[:3]
    )


def alternation(found: Measured) -> Answer:
    """Schedules by r² keep more answers than as many first blocks and one jump, on average."""
    single, chosen = (
        {str(row["n_run"]): row for row in found["schedules"] if row["name"] == name}
        for name in ("single", "r2")
    )
    differing = [
        n for n in chosen if n in single and chosen[n]["schedule"] != single[n]["schedule"]
    ]
    if not differing:
        raise LackingError("no schedule by r² differs from a single jump")
    in_turn, one_jump = (
        curve(name, {n: _with_interval(rows[n]) for n in differing}, "precision@1")
        for name, rows in (("in turn", chosen), ("one jump", single))
    )
    return on_average(in_turn, one_jump, percent=True)


def saved(found: Measured, *, rule: str) -> Answer:
    """Exits through mat save more layers than exits of states as they are."""
    rows = {row["map"]: row for row in found["choices"] if row["rule"] == rule}
    by_map = [
        curve(f"saved by {name}", {"": rows[name]} if name in rows else {}, "saved_at_target")
        for name in ("mat", "id")
    ]
    return everywhere(*by_map, percent=True)


NAMES = ("attn", "ff", "norms", "blocks")
WORDS = {"attn": "attention", "ff": "feed forward", "norms": "both norms", "blocks": "one map"}


def _with_interval(row: dict[str, Any]) -> dict[str, Any]:
    """A schedule's Precision@1 with its interval, under the names that other scores have."""
    ends = row.get("precision_interval")
    return {"precision@1": row["precision@1"], "precision@1_interval": ends}


def _known(values: dict[str, Any]) -> dict[str, float]:
    return {place: value for place, value in values.items() if value is not None}


def _mat_and_id(found: Measured, measure: str) -> tuple[Curve, Curve]:
    mat, other = (curve(kind, found["layers"].get(kind, {}), measure) for kind in ("mat", "id"))
    return mat, other


def _part(found: Measured, name: str) -> Curve:
    return curve(WORDS[name], found["parts"].get(name, {}), "precision@1")


def _late(one: Curve, first: float) -> Curve:
    """The same from a layer on."""
    values, low, high = (
        {at: value for at, value in each.items() if int(at) >= first}
        for each in (one.values, one.low, one.high)
    )
    return Curve(one.name, values, low, high)


_claim = partial(Claim, paper="jump", figure="", number="")
CLAIMS: tuple[Claim, ...] = (
    _claim(
        id="r2",
        step="score",
        section="§3",
        figure="r² heat maps",
        says="mat comes closer to later states than id, for every pair of layers.",
        rule="r² of mat over that of id for every pair",
        judge=r2,
    ),
    *(
        _claim(
            id=f"precision-{k}",
            step="score",
            section="§4",
            figure=f"Precision@{k} by layer",
            says=says,
            number=number,
            rule=f"Precision@{k} of mat over that of id at every layer",
            judge=partial(precision, k=k),
        )
        for k, number, says in (
            (
                1,
                "28 to 45 %",
                "At every layer, mat names the model's own final answer more often than id.",
            ),
            (
                5,
                "52 to 74 %",
                "At every layer, what mat names is among the model's own first 5 more often than "
                "what id names.",
            ),
            (
                10,
                "62 to 82 %",
                "At every layer, what mat names is among the model's own first 10 more often than "
                "what id names.",
            ),
        )
    ),
    _claim(
        id="surprisal",
        step="score",
        section="§4",
        figure="Surprisal by layer",
        says="At every layer, the model finds what mat names less surprising than what id names "
        "(nats).",
        rule="surprisal of mat under that of id at every layer",
        judge=surprisal,
    ),
    _claim(
        id="early",
        step="score",
        section="abstract",
        says="The final answer is often there in early layers already.",
        number="Precision@10 62 to 82 %; 8 to 52 % (BERT)",
        rule="ours: at half the depth, mat's answer is among the model's first ten at half the "
        "positions or more",
        judge=early,
    ),
    _claim(
        id="transfer",
        step="transfer",
        section="abstract",
        figure="transfer between corpora",
        says="mat is better than id across data: also where it was fitted on another kind of text, "
        "at every layer.",
        number="Precision changes by −0.1, +1.1, −5.5, −8 %",
        rule="Precision@1 of mat fitted on the other text over that of id at every layer",
        judge=transfer,
    ),
    _claim(
        id="attention-ff",
        step="submodules",
        section="abstract",
        figure="Precision by first replaced block",
        says="Attention tolerates being made linear better than the feed-forward part.",
        rule="Precision@1 on average over first blocks",
        judge=partial(linear_part, tolerant="attn", other="ff"),
    ),
    _claim(
        id="attention-norms",
        step="submodules",
        section="abstract",
        figure="Precision by first replaced block",
        says="Attention is the sub-module most tolerant of being made linear: more than layer "
        "normalization (both norms of a block together).",
        rule="Precision@1 on average over first blocks",
        judge=partial(linear_part, tolerant="attn", other="norms"),
    ),
    _claim(
        id="parts-one-map",
        step="submodules",
        figure="Precision by first replaced block",
        section="",
        says="From about layer 7 on, making a sub-module linear in all blocks keeps more answers "
        "than one map in place of these blocks.",
        number="from about layer 7 of 24",
        rule="Precision@1 of attention, feed-forward part and norms over that of one map, at every "
        "first block from 7/24 of the depth on",
        judge=parts_and_one_map,
    ),
    _claim(
        id="exit",
        step="exits",
        section="abstract",
        figure="confidence exit at 95 %",
        says="With exits by confidence that keep 95 % of the answers, mat saves more layers than "
        "id.",
        number="13.8 % against 5.9 % (GPT-2, 24 layers), 20 % against 14.6 % (BERT, 24 layers)",
        rule="share of blocks saved by mat over that saved by id",
        judge=partial(saved, rule="confidence"),
    ),
    _claim(
        id="exit-fixed",
        step="exits",
        section="abstract",
        figure="fixed exit at 95 %",
        says="With an exit after a fixed number of blocks that keeps 95 % of the answers, mat "
        "saves more layers than id.",
        rule="share of blocks saved by mat over that saved by id",
        judge=partial(saved, rule="fixed"),
    ),
    _claim(
        id="alternation",
        step="alternate",
        section="§6",
        says="Blocks and jumps in turn keep more answers than as many first blocks and one jump.",
        rule="Precision@1 of the schedule that r² recommends over that of the single jump, on "
        "average over numbers of blocks run at which the two differ",
        judge=alternation,
    ),
)
