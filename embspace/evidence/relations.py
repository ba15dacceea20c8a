"""Which relation each head holds: the share of a relation's pairs its W_VO brings together.

[Elhelo & Geva 2024] Pairs (s, t) of words that are one token. A head promotes a pair where t is
among the first k of s's row of W_VO over the whole vocabulary, and suppresses it where t is among
the last k.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import indices, positive, whole
from ..errors import EmbspaceError
from ..read.circuits import HeadCircuit
from ..read.default_reading import default_reading
from ..read.reading import Reading
from ..read.seen_rows import source_mean, source_rows
from ..read.sides import tables_of
from ..results import ListResult, Record, Result
from .relation_ranks import Asked, Hits, hits_of_head
from .relation_sets import RelationSet, TokenPairs, bundled_relations, names_of, token_pairs

if TYPE_CHECKING:
    from ..weights.model import Model

PERMUTATIONS = 2000
LEAST = 5  # pairs of single tokens that a relation needs
ROWS = 8192  # rows of a table projected at a time
SIGNIFICANT = 0.05  # corrected p below which a head is said to hold a relation

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class RelationScores(Record):
    """One relation over all heads: matrices of layers × heads.

    promote, suppress: share of the pairs whose target is among the first, the last k. p: chance of
    so large a promote share, or larger, in any head and relation where targets are permuted.
    """

    pairs: int
    k: int
    promote: Matrix
    suppress: Matrix
    p: Matrix

    def best(self) -> tuple[int, int]:
        """Row and column of the head that promotes most."""
        places = ((x, h) for x, row in enumerate(self.promote) for h in range(len(row)))
        return max(places, key=lambda at: self.promote[at[0]][at[1]])

    def n_significant(self) -> int:
        """How many heads hold the relation beyond chance."""
        return sum(p < SIGNIFICANT for row in self.p for p in row)


@dataclass(frozen=True)
class Relations(Result):
    """Relation scores of heads; row x of a matrix is `layers[x]`, column h is `heads[h]`."""

    relations: dict[str, RelationScores]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """`{"relations": {NAME: {"pairs", "k", "promote", "suppress", "p"}}}`."""
        return {"relations": {name: one.to_dict() for name, one in self.relations.items()}}

    def rows(self) -> list[dict[str, Any]]:
        """One row a relation and head."""
        return [
            {"relation": name, "layer": layer, "head": head, "pairs": one.pairs, "k": one.k}
            | {key: getattr(one, key)[x][h] for key in ("promote", "suppress", "p")}
            | {"model_hash": self.provenance.get("model_hash", "")}
            for name, one in self.relations.items()
            for x, layer in enumerate(self.layers)
            for h, head in enumerate(self.heads)
        ]


@dataclass(frozen=True)
class HeadRelation(Record):
    """How one head stands to one relation, with the pairs it promotes and those it misses."""

    relation: str
    pairs: int
    k: int
    promote: float
    suppress: float
    p: float
    found: tuple[tuple[str, str], ...]
    missed: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RelationsOfHead(ListResult):
    """One head's relations, those it promotes most first."""

    ITEMS = "relations"
    layer: int
    head: int
    relations: tuple[HeadRelation, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row a relation; words of a pair are joined by an arrow."""
        where = {"layer": self.layer, "head": self.head}
        return [
            where
            | one.to_dict()
            | {key: "; ".join(f"{a} → {b}" for a, b in getattr(one, key)) for key in _EXAMPLES}
            for one in self
        ]


_EXAMPLES = ("found", "missed")
Found = dict[tuple[int, int], list[tuple[Hits, Hits]]]  # (layer, head) -> by relation


class ScoringRelations:
    """`relations` layer by layer: iterate (it yields layers as they are done), ask for `result`."""

    def __init__(
        self,
        model: "Model",
        sets: Iterable[RelationSet] | None = None,
        *,
        reading: Reading | None = None,
        layers: Iterable[int] | None = None,
        heads: Iterable[int] | None = None,
        k: int | None = None,
        seed: int = 0,
        **changes: Any,
    ) -> None:
        given = tuple(bundled_relations() if sets is None else sets)
        names_of(given)
        self.model = model
        self.reading = (reading or Reading()).but(**changes) if changes else reading
        self.seed = whole(seed, "seed")
        rows, columns = range(model.n_layers), range(model.n_heads)
        self.layers = tuple(rows if layers is None else indices(layers, len(rows), "layer"))
        self.heads = tuple(columns if heads is None else indices(heads, len(columns), "head"))
        every = [token_pairs(model.vocabulary, one) for one in given]
        self.asked = [one for one in every if len(one) >= LEAST]
        self.k = None if k is None else min(positive(k, "k"), len(model.vocabulary))
        self.notes = _notes(every)
        if not self.asked:
            raise EmbspaceError(
                f"no relation has {LEAST} pairs of words that are one token in "
                f"{model.vocabulary.name}: give pairs of its common words."
            )
        self._hits: Found = {}

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[int]:
        ids = torch.tensor([i for one in self.asked for i in one.sources]).unique()
        asked = [
            Asked(
                torch.searchsorted(ids, torch.tensor(one.sources)),
                torch.tensor(one.targets),
                self.k or one.k,
            )
            for one in self.asked
        ]
        for layer in self.layers:
            how = self._how(layer)
            for head, source, target in _projected(self.model, layer, self.heads, how, ids):
                self._hits[layer, head] = hits_of_head(source, target, asked)
            yield layer

    def settings(self) -> dict[str, Any]:
        """How relations were scored."""
        how = self._how(self.layers[-1])
        same = all(self._how(layer) == how for layer in self.layers)
        return {
            "reading": how.name if same else "by layer, as kept for this model",
            "norm": how.norm,
            "permutations": PERMUTATIONS,
            "seed": self.seed,
        }

    def _how(self, layer: int) -> Reading:
        return self.reading or default_reading(self.model, layer)

    def result(self) -> Relations:
        """Every relation over all heads asked for."""
        p = self._p()
        return Relations(
            {one.name: self._scores(n, one, p[n]) for n, one in enumerate(self.asked)},
            self.layers,
            self.heads,
            self.settings(),
            self.model.provenance,
            self.notes,
        )

    def of_head(self) -> RelationsOfHead:
        """The relations of the first head asked for."""
        at, p = (self.layers[0], self.heads[0]), self._p()
        found = []
        for n, (one, (promoted, suppressed)) in enumerate(
            zip(self.asked, self._hits[at], strict=True)
        ):
            seen = promoted.found(len(one))
            found.append(
                HeadRelation(
                    one.name,
                    len(one),
                    self.k or one.k,
                    promoted.n_found / len(one),
                    suppressed.n_found / len(one),
                    float(p[n][0]),
                    tuple(pair for pair, yes in zip(one.words, seen, strict=True) if yes),
                    tuple(pair for pair, yes in zip(one.words, seen, strict=True) if not yes),
                )
            )
        found.sort(key=lambda one: (-one.promote, -one.suppress, one.relation))
        return RelationsOfHead(
            *at, tuple(found), self.settings(), self.model.provenance, self.notes
        )

    def _places(self) -> list[tuple[int, int]]:
        return [(layer, head) for layer in self.layers for head in self.heads]

    def _scores(self, n: int, one: TokenPairs, p: Tensor) -> RelationScores:
        def matrix(values: Sequence[float]) -> Matrix:
            wide = len(self.heads)
            return tuple(tuple(values[i : i + wide]) for i in range(0, len(values), wide))

        hits = [self._hits[at][n] for at in self._places()]
        return RelationScores(
            len(one),
            self.k or one.k,
            matrix([promoted.n_found / len(one) for promoted, _ in hits]),
            matrix([suppressed.n_found / len(one) for _, suppressed in hits]),
            matrix(p.tolist()),
        )

    def _p(self) -> list[Float[Tensor, "heads"]]:
        """Corrected p-values, relation by relation, of heads in order."""
        every = []
        for n, one in enumerate(self.asked):
            hits = [self._hits[at][n][0] for at in self._places()]
            every.append(corrected(hits, len(one), self.seed + n, len(self.asked)))
        return every


def relations(
    model: "Model",
    sets: Iterable[RelationSet] | None = None,
    *,
    reading: Reading | None = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    k: int | None = None,
    seed: int = 0,
    **changes: Any,
) -> Relations:
    """Score heads by the relations whose pairs their W_VO brings together.

    Args:
        model: whose heads.
        sets: relations; without, those that ship with the package. Pairs with a word that is not
            one token are left out, and relations with fewer than 5 pairs left.
        reading: source and target sides; without, the model's own by layer (`default_reading`).
            All tokens are candidates, whatever its `common` says.
        layers, heads: which; by default all.
        k: a target among the first k counts; by default each set's own, else 10, or 25 for
            vocabularies of 128,000 tokens and more.
        seed: of the permutations.
        changes: fields of `Reading`, such as `source="first-mlp"`, to change in `reading`; without
            one, in the papers' own: raw rows of E.

    Returns:
        Shares of pairs promoted and suppressed, and p-values by permuting the targets among the
        pairs 2,000 times, corrected over heads (largest share of each permutation) and relations
        (times their number).

    Raises:
        EmbspaceError: no relation is left, two have one name, or the model lacks a side.

    Example:
        >>> import embspace
        >>> from embspace.evidence.relation_sets import RelationSet
        >>> young = RelationSet("young", (("deer", "fawn"), ("duck", "duckling"), ("cow", "calf"),
        ...     ("dog", "puppy"), ("cat", "kitten"), ("bear", "cub"), ("horse", "foal")))
        >>> found = relations(embspace.load("sample-gpt2"), [young], source="embedding")
        >>> found.relations["young"].pairs
        7
    """
    scoring = ScoringRelations(
        model, sets, reading=reading, layers=layers, heads=heads, k=k, seed=seed, **changes
    )
    for _ in scoring:
        pass
    return scoring.result()


def corrected(hits: Sequence[Hits], n: int, seed: int, n_relations: int) -> Float[Tensor, "heads"]:
    """p of each head's share of n pairs, by permuting targets; corrected over heads and relations.

    Against the largest share of any head in each permutation (Westfall & Young), then times the
    number of relations.
    """
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.rand(PERMUTATIONS, n, generator=generator).argsort(dim=1)
    largest = torch.zeros(PERMUTATIONS, dtype=torch.long)
    for one in hits:
        if len(one.i):
            largest = torch.maximum(largest, (shuffled[:, one.i] == one.j).sum(1))
    own = torch.tensor([one.n_found for one in hits])
    as_large = (largest[None] >= own[:, None]).sum(1)
    p = (1 + as_large.double()) / (1 + PERMUTATIONS)
    return (p * n_relations).clamp_max(1.0)


def _projected(
    model: "Model", layer: int, heads: Sequence[int], how: Reading, ids: Int[Tensor, "n"]
) -> Iterator[tuple[int, Float[Tensor, "n d_h"], Float[Tensor, "d_h V"]]]:
    """Each head's source rows of some tokens and target columns of all, in the model's dtype.

    Of a row's order only the source's centring and the target's length count: rows may be scaled,
    and every target of a row moved, without moving its targets' places.
    """
    circuits = [HeadCircuit(model, layer, head, "vo", reading=how) for head in heads]
    reads = torch.cat([circuit.matrices[0] for circuit in circuits], dim=1)
    rows = source_rows(model, layer, how, ids)
    if how.centre:
        rows = rows - source_mean(model, layer, how)
    source = rows @ model.vocabulary.back(reads, how.inverse)
    table = tables_of(model).target(None)
    for at, circuit in zip(source.split(model.d_head, dim=1), circuits, strict=True):
        writes = circuit.matrices[1].T.contiguous()
        target = writes.new_empty(len(writes), len(table))
        for start in range(0, len(table), ROWS):
            part = table[start : start + ROWS].to(writes)
            torch.mm(writes, part.T, out=target[:, start : start + len(part)])
        if how.unit:
            target -= target.mean(1, keepdim=True) if how.centre else 0.0
            target /= target.norm(dim=0, keepdim=True).clamp_min(1e-30)
        yield circuit.head, at.contiguous(), target


def _notes(every: Sequence[TokenPairs]) -> tuple[str, ...]:
    """What was left out, in a sentence each."""
    split, few = sum(one.n_split for one in every), [one for one in every if len(one) < LEAST]
    n = split + sum(map(len, every))
    said = []
    if split:
        said.append(f"{split:,} of {n:,} pairs are left out: a word of theirs is not one token.")
    if few:
        names = ", ".join(one.name for one in few)
        said.append(f"fewer than {LEAST} pairs are left of {names}: not scored.")
    return tuple(said)
