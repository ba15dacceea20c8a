"""Parameter vectors nearest to a topic: the mean embedding of some words. [DAR] §4.1."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import indices, one_of, positive
from ..checking import seed as checked_seed
from ..errors import VocabularyError
from ..notation import GROUPS, NORMS, Norm
from ..read.vectors import FeedForwardReading, VectorGroup, sub_heads
from ..results import ListResult, Record
from ..weights.filters import filter_names
from ..weights.vocabulary import BLOCK, Token, VocabularySpace

if TYPE_CHECKING:
    from ..weights.model import Model

DRAWS = 1000  # random topics
BELOW = 1e-30


@dataclass(frozen=True)
class ConceptVector(Record):
    """One vector near the topic, and how near random topics come to it.

    `cosine`: with the topic (its size, for sub-heads, whose sign means nothing). `p`: the share of
    random topics at least as near to this vector. `p_best`: the share of random topics that have
    any vector of this part at least as near, which allows for the search.
    """

    part: str
    layer: int
    where: str  # "neuron 17", "expert 3 neuron 17", "head 2 column 5"
    cosine: float
    p: float
    p_best: float
    top: tuple[Token, ...]


@dataclass(frozen=True)
class Concept(ListResult):
    """The vectors of each part nearest to a topic, nearest first.

    `tokens`: of the topic; `best_random`: for each part the mean and the 95th percentile, over
    random topics, of the cosine of their own nearest vector. `common`: cosine of the topic with the
    mean of all rows of E^T, before that is taken away where the topic is centred.
    """

    ITEMS = "vectors"
    words: tuple[str, ...]
    tokens: tuple[str, ...]
    vectors: tuple[ConceptVector, ...]
    n_vectors: dict[str, int]
    best_random: dict[str, tuple[float, float]]
    common: float
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def of_part(self, part: str) -> tuple[ConceptVector, ...]:
        """The vectors of one part."""
        return tuple(vector for vector in self.vectors if vector.part == part)

    def to_dict(self) -> dict[str, Any]:
        """Topic, vectors and the baseline of each part."""
        return {
            "words": list(self.words),
            "tokens": list(self.tokens),
            "vectors": [vector.to_dict() for vector in self.vectors],
            "best_random": {
                part: {"n_vectors": self.n_vectors[part], "mean": mean, "percentile_95": high}
                for part, (mean, high) in self.best_random.items()
            },
            "common": self.common,
            "settings": self.settings,
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a vector."""
        return [
            v.to_dict() | {"top": " ".join(token.label for token in v.top)} for v in self.vectors
        ]


def concept(
    model: "Model",
    words: Iterable[str],
    *,
    k: int = 10,
    n_tokens: int = 8,
    draws: int = DRAWS,
    heads: bool = False,
    centred: bool = False,
    layers: Iterable[int] | None = None,
    norm: Norm = "raw",
    filters: str | Iterable[str] = (),
    seed: int = 0,
) -> Concept:
    """The k keys and the k values with the largest cosine to the mean embedding of some words.

    A word counts with the row of E^T of its one-token spelling, the one with a leading space where
    there are two. `heads` adds columns of W_Q, W_K, W_V and rows of W_O, by |cosine|. `centred`
    takes the mean of all rows away from every topic: what the words have beyond any token.
    Baseline: `draws` random topics of as many whole words, drawn by `seed`. `filters` hold for the
    `n_tokens` shown of each vector. Raises VocabularyError for a word that is not one token, or a
    topic given twice or too large for the vocabulary.
    """
    k, n_tokens, draws = positive(k), positive(n_tokens, "n_tokens"), positive(draws, "draws")
    one_of(norm, NORMS, "norm")
    space, filters, seed = model.vocabulary, filter_names(filters), checked_seed(seed)
    chosen = range(model.n_layers) if layers is None else indices(layers, model.n_layers, "layer")
    words = tuple(dict.fromkeys([words] if isinstance(words, str) else words))
    ids = topic_ids(space, words)
    own, random = _means(model, [ids]), _random_topics(model, len(ids), draws, seed)
    common = mean_row(space).to(own)
    cosine = float(own[0] @ common / (own.norm() * common.norm()).clamp_min(BELOW))
    topics = torch.cat([own, random])
    topics = _unit(topics - common if centred else topics)
    parts: dict[str, _Part] = {}
    for name, group, place in _groups(model, list(chosen), norm, heads):
        parts.setdefault(name, _Part(name, k, len(topics))).add(group, topics, *place)
    mask = space.mask(filters)
    found = [v for part in parts.values() for v in part.vectors(space, n_tokens, mask)]
    settings = {"k": k, "draws": draws, "heads": heads, "centred": centred, "norm": norm}
    return Concept(
        words,
        tuple(space.labels[i] for i in ids),
        tuple(found),
        {name: part.n for name, part in parts.items()},
        {name: part.random for name, part in parts.items()},
        cosine,
        settings | {"filters": list(filters), "seed": seed},
        model.provenance,
    )


def topic_ids(space: VocabularySpace, words: Iterable[str]) -> list[int]:
    """One token a word. Raises VocabularyError where there is none, or no word at all."""
    ids = list(dict.fromkeys(space.token_ids(word)[-1] for word in words))
    if not ids:
        raise VocabularyError("a topic needs at least one word.")
    return ids


def mean_row(space: VocabularySpace) -> Float[Tensor, "d"]:
    """The mean of all rows of E^T, in float64."""
    total = torch.zeros(space.d, dtype=torch.float64, device=space.table.device)
    for part in space.table.split(BLOCK):
        total += part.double().sum(dim=0)
    return total / len(space)


def _means(model: "Model", topics: list[list[int]]) -> Float[Tensor, "n d"]:
    """Mean embeddings, one row a topic."""
    table = model.vocabulary.table
    rows = table[torch.tensor(topics, device=table.device)]
    return rows.to(model.device, model.dtype).mean(dim=1)


def _unit(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return x / x.norm(dim=1, keepdim=True).clamp_min(BELOW)


def _random_topics(model: "Model", n: int, draws: int, seed: int) -> Float[Tensor, "draws d"]:
    """Mean embeddings of n different whole words each."""
    space = model.vocabulary
    mask = space.mask("words")
    assert mask is not None
    pool = mask.nonzero()[:, 0]
    if n > len(pool):
        raise VocabularyError(f"a topic of {n} words: the vocabulary has {len(pool)} whole words.")
    random = torch.Generator().manual_seed(seed)
    topics = [pool[torch.randperm(len(pool), generator=random)[:n]] for _ in range(draws)]
    step = max(1, (1 << 24) // (n * space.d))
    return torch.cat(
        [
            _means(model, [ids.tolist() for ids in topics[at : at + step]])
            for at in range(0, draws, step)
        ]
    )


def _groups(
    model: "Model", layers: list[int], norm: Norm, heads: bool
) -> Iterator[tuple[str, VectorGroup, tuple[int, str, bool]]]:
    """Every group of vectors: its part, and (layer, how its vectors are named, unsigned)."""
    for layer in layers:
        for expert in model.experts(layer):
            which = "" if expert is None else f"expert {expert} "
            for name, group in FeedForwardReading(model, layer, expert, norm).groups().items():
                yield name, group, (layer, f"{which}neuron", False)
        if heads:
            shared = model.n_heads // model.n_kv_heads
            for part in GROUPS:
                own = range(0, model.n_heads, 1 if part in ("q", "o") else shared)
                for h in own:
                    head = f"head {h}" if part in ("q", "o") else f"key/value head {h // shared}"
                    column = "row" if part == "o" else "column"
                    group = sub_heads(model, layer, h, part, norm)  # type: ignore[arg-type]
                    yield f"W_{part.upper()}", group, (layer, f"{head} {column}", True)


class _Part:
    """The nearest vectors of one part so far, and how near random topics come."""

    def __init__(self, name: str, k: int, n_topics: int) -> None:
        self.name, self.k, self.n = name, k, 0
        self.best = torch.full((n_topics,), -torch.inf, dtype=torch.float64)
        self.kept: list[tuple[float, int, str, float, Tensor]] = []

    def add(
        self, group: VectorGroup, topics: Tensor, layer: int, where: str, unsigned: bool
    ) -> None:
        """Compare all vectors of a group with all topics, the asked one first."""
        x = group.vectors
        cosines = _unit(x) @ topics.T
        sizes = (cosines.abs() if unsigned else cosines).double().cpu()
        self.n += len(x)
        self.best = torch.maximum(self.best, sizes.amax(dim=0))
        own, order = sizes[:, 0].sort(descending=True, stable=True)
        for cosine, at in zip(own[: self.k].tolist(), order[: self.k].tolist(), strict=True):
            p = _share(sizes[at, 1:], cosine)
            vector = -x[at] if unsigned and cosines[at, 0] < 0 else x[at]
            self.kept.append((cosine, layer, f"{where} {at}", p, vector.clone()))
        self.kept.sort(key=lambda hit: (-hit[0], hit[1]))
        del self.kept[self.k :]

    @property
    def random(self) -> tuple[float, float]:
        """Mean and 95th percentile of random topics' nearest cosine."""
        others = self.best[1:]
        return float(others.mean()), float(others.quantile(0.95))

    def vectors(
        self, space: VocabularySpace, n_tokens: int, mask: Tensor | None
    ) -> Iterator[ConceptVector]:
        """The nearest vectors with their top tokens."""
        ids, scores = space.top_ids(torch.stack([x for *_, x in self.kept]), n_tokens, allowed=mask)
        for hit, i, s in zip(self.kept, ids.tolist(), scores.tolist(), strict=True):
            cosine, layer, where, p, _ = hit
            top = tuple(space.token(a, b) for a, b in zip(i, s, strict=True))
            best = _share(self.best[1:], cosine)
            yield ConceptVector(self.name, layer, where, cosine, p, best, top)


def _share(random: Float[Tensor, "draws"], value: float) -> float:
    """(1 + how many are as large) / (1 + draws): a p-value that is never 0."""
    return (1 + int((random >= value).sum())) / (1 + len(random))
