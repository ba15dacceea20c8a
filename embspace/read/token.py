"""One token across the model: neighbours in E, and the heads and neurons that use it most."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import index, positive
from ..notation import Norm
from ..results import Record, Result, SeveralResults
from ..weights.filters import filter_names
from ..weights.vocabulary import BLOCK, Token, VocabularySpace
from .circuits import HeadCircuit, root_mean_squares
from .pairs import top_of_rows
from .reading import PAPERS, Reading
from .seen_rows import asked_mask, n_asked
from .vectors import FeedForwardReading, vector_settings

if TYPE_CHECKING:
    from ..weights.model import Model

ROLES = {
    ("vo", 0): "reads it, promotes",
    ("vo", 1): "writes it on seeing",
    ("qk", 0): "from it, attends to",
    ("qk", 1): "to it, attention from",
}


@dataclass(frozen=True)
class HeadUse(Record):
    """What a head does with the token: its strongest partner, the score, and score over rms."""

    layer: int
    head: int
    role: str
    partner: str
    score: float
    strength: float
    partner_id: int
    partner_text: str | None


@dataclass(frozen=True)
class NeuronUse(Record):
    """How strongly one key or value bears on the token: x · e, and that over its rms over V."""

    layer: int
    expert: int | str | None
    kind: str
    neuron: int
    score: float
    strength: float


@dataclass(frozen=True)
class TokenReading(Result):
    """A token's neighbours (cosine in E) and the heads and neurons that use it most.

    `strength` is a score divided by the root mean square of all scores of that head or vector.
    """

    id: int
    token: str
    neighbours: tuple[Token, ...]
    heads: tuple[HeadUse, ...]
    neurons: tuple[NeuronUse, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row a neighbour, head or neuron; columns that do not apply are empty.

        `query` is the token asked about, `token` and `id` the neighbour or the head's partner.
        """
        columns = (
            "query",
            "query_id",
            "kind",
            "token",
            "id",
            "text",
            "layer",
            "head",
            "expert",
            "neuron",
            "role",
            "score",
            "strength",
        )
        rows = [{"kind": "neighbour"} | t.to_dict() for t in self.neighbours]
        rows += [
            {"kind": "head", "token": h.partner, "id": h.partner_id, "text": h.partner_text}
            | _pick(h, columns)
            for h in self.heads
        ]
        rows += [_pick(n, columns) for n in self.neurons]
        asked = {"query": self.token, "query_id": self.id}
        return [{column: (asked | row).get(column, "") for column in columns} for row in rows]


@dataclass(frozen=True)
class TokenReadings(SeveralResults):
    """The readings of a word, one for each of its spellings that is one token.

    `query` and `query_id` tell their rows apart.
    """

    ITEMS = "readings"
    readings: tuple[TokenReading, ...]

    def to_dict(self) -> dict[str, Any]:
        """All readings under "tokens"."""
        return {"tokens": [reading.to_dict() for reading in self.readings]}


def read_token(
    model: "Model",
    i: int,
    *,
    k: int = 20,
    norm: Norm = "raw",
    filters: str | Iterable[str] = (),
    reading: Reading | Callable[[int], Reading] = PAPERS,
) -> TokenReading:
    """Everything the weights say about token i, over all layers, exactly.

    Neighbours by cosine (of centred rows where the reading centres); heads ranked by |strength| of
    their strongest partner in each of four roles; neurons by |strength|. reading: one for all
    layers, or what gives a layer's, such as `model.reading`.
    """
    space, k, filters = model.vocabulary, positive(k), filter_names(filters)
    i = index(i, len(space), "token id")
    changes: dict[str, Any] = {} if norm == "raw" else {"norm": norm}
    given = [reading if isinstance(reading, Reading) else reading(l) for l in range(model.n_layers)]
    how = [each.but(**changes) for each in given]
    mask = asked_mask(model, how[0], filters)
    plain = all(each.is_plain for each in how)
    heads = list(_heads(model, i, norm, mask) if plain else _heads_through(model, i, how, filters))
    neurons = [use for l, each in enumerate(how) for use in _neurons(model, l, i, each, k)]
    heads.sort(key=lambda use: -abs(use.strength))
    neurons.sort(key=lambda use: -abs(use.strength))
    return TokenReading(
        i,
        space.labels[i],
        _neighbours(space.turned(centre=how[0].centre, unit=False), i, k, mask),
        tuple(heads[:k]),
        tuple(neurons[:k]),
        vector_settings(how[0]) | {"filters": list(filters), "k": k},
        model.provenance,
    )


def _neighbours(space: VocabularySpace, i: int, k: int, mask) -> tuple[Token, ...]:
    """Tokens whose rows make the smallest angle with the token's own, which is left out."""
    e = space.table[i]
    cosines = torch.cat(
        [_cosines(space.table[s : s + BLOCK], e) for s in range(0, len(space), BLOCK)]
    )
    cosines[i] = -torch.inf
    if mask is not None:
        cosines[~mask.to(cosines.device)] = -torch.inf
    scores, ids = cosines.sort(descending=True, stable=True)
    found = [(n, s) for n, s in zip(ids[:k].tolist(), scores[:k].tolist(), strict=True)]
    return tuple(space.token(n, s) for n, s in found if s > -float("inf"))


def _cosines(rows: Float[Tensor, "n d"], e: Float[Tensor, "d"]) -> Float[Tensor, "n"]:
    rows, e = rows.double(), e.double()
    return (rows @ e) / (rows.norm(dim=1) * e.norm()).clamp_min(1e-30)


def _heads(model: "Model", i: int, norm: Norm, mask: Tensor | None) -> Iterator[HeadUse]:
    """The strongest partner of token i in every head and each of its four roles.

    A pair of the token with itself is one score, and named once, in the first of its two roles.
    Only what a layer says of e is kept, not its matrices; one search serves all layers.
    """
    about, asked, rms = [], [], []
    e = model.vocabulary.table[i : i + 1].to(model.dtype)
    for layer in range(model.n_layers):
        circuits = _circuits(model, layer, norm)
        rms += root_mean_squares(circuits)
        asked += [row for circuit in circuits for row in _both_ways(circuit, e)]
        about += [(layer, circuit.head, circuit.circuit) for circuit in circuits]
    found = model.vocabulary.top_ids(torch.cat(asked), 1, allowed=mask)
    ids, scores = (column[:, 0].tolist() for column in found)
    for at, (j, score) in enumerate(zip(ids, scores, strict=True)):
        if at % 2 and ids[at - 1] == j == i:
            continue
        layer, head, circuit = about[at // 2]
        space, role = model.vocabulary, ROLES[circuit, at % 2]
        strength = score / max(rms[at // 2], 1e-30)
        yield HeadUse(layer, head, role, space.labels[j], score, strength, j, space.texts[j])


def _heads_through(
    model: "Model", i: int, how: list[Reading], filters: tuple[str, ...]
) -> Iterator[HeadUse]:
    """The same through other sides than the papers'."""
    space = model.vocabulary
    for layer, reading in enumerate(how):
        mask = asked_mask(model, reading, filters)
        for head in range(model.n_heads):
            for circuit in ("vo", "qk"):
                found = HeadCircuit(model, layer, head, circuit, reading=reading)
                factors = found.factors_with([i])
                first = None
                for turn, (one, other) in enumerate((factors, factors[::-1])):
                    options: dict[str, Any] = {"columns": mask}
                    (top,) = top_of_rows(one, other, [i], 1, **options)
                    j, score = int(top.j[0]), float(top.score[0])
                    if turn and first == j == i:
                        continue
                    first, role = j, ROLES[circuit, turn]
                    strength, label = score / max(found.rms, 1e-30), space.labels[j]
                    yield HeadUse(layer, head, role, label, score, strength, j, space.texts[j])


def _circuits(model: "Model", layer: int, norm: Norm) -> list[HeadCircuit]:
    return [
        HeadCircuit(model, layer, head, circuit, norm=norm)
        for head in range(model.n_heads)
        for circuit in ("vo", "qk")
    ]


def _both_ways(circuit: HeadCircuit, e: Float[Tensor, "1 d"]) -> tuple[Tensor, Tensor]:
    """e W and e W^T: what e scores as the source, and as the target, of every token."""
    left, right = circuit.matrices
    return e @ left @ right.T, e @ right @ left.T


def _neurons(model: "Model", layer: int, i: int, how: Reading, k: int) -> Iterator[NeuronUse]:
    """The k keys and values of a layer with the largest |x · e| over their rms."""
    n_tokens = n_asked(model, how)
    for expert in model.experts(layer):
        for kind, group in FeedForwardReading(model, layer, expert, reading=how).groups().items():
            x, space = group.vectors, group.space
            scores = (x.double() @ group.rows([i])[0]).cpu()
            rms = ((x @ space.gram.to(x)) * x).sum(1).clamp_min(0).double().cpu() / n_tokens
            strength = scores / rms.sqrt().clamp_min(1e-30)
            for n in strength.abs().topk(min(k, len(x))).indices.tolist():
                yield NeuronUse(layer, expert, kind, n, float(scores[n]), float(strength[n]))


def _pick(use: HeadUse | NeuronUse, columns: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in vars(use).items() if key in columns and value is not None}
