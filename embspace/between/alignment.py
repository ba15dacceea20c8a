"""Which layer of one model corresponds to which of another, by their parameters. [DAR] §5.1."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..checking import one_of
from ..checking import seed as checked_seed
from ..errors import EmbspaceError
from ..notation import NORMS, Norm
from ..results import Result
from ..weights.model import Model
from .correlations import FeatureCorrelation, Space, VocabularyCorrelation
from .layer_scores import Scores
from .layer_vectors import chosen_groups, pieces
from .matching import LayerMatch, match_layers, numbers, tied
from .shared_tokens import SharedTokens, shared_tokens

Watch = Callable[[Iterable[None], int], Iterable[None]]


@dataclass(frozen=True)
class GroupAlignment:
    """The match of one parameter group in vocabulary space, and in feature space or None."""

    vocabulary: LayerMatch
    feature: LayerMatch | None

    def spaces(self) -> dict[str, LayerMatch]:
        """The matches there are, by space."""
        found = {"vocabulary": self.vocabulary}
        return found if self.feature is None else found | {"feature": self.feature}

    def to_dict(self) -> dict[str, Any]:
        """Both spaces."""
        feature = None if self.feature is None else self.feature.to_dict()
        return {"vocabulary": self.vocabulary.to_dict(), "feature": feature}


@dataclass(frozen=True)
class Alignment(Result):
    """Layers of A matched with layers of B, group by group, in vocabulary and in feature space.

    `coverage` says how many tokens the two vocabularies share; `provenance` holds both models'.
    """

    groups: dict[str, GroupAlignment]
    n_layers: tuple[int, int]
    coverage: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Groups with both spaces each, coverage, settings, provenance and notes."""
        return {
            "groups": {name: group.to_dict() for name, group in self.groups.items()},
            "n_layers": {"a": self.n_layers[0], "b": self.n_layers[1]},
            "coverage": self.coverage,
            "settings": self.settings,
            "provenance": self.provenance,
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair of layers: its score in a space, and whether the two are matched."""
        return [
            {"group": name, "space": space, "layer_a": i, "layer_b": j}
            | {"score": score, "matched": found.match[i] == j}
            for name, group in self.groups.items()
            for space, found in group.spaces().items()
            for i, row in enumerate(found.score)
            for j, score in enumerate(row)
        ]


def align(
    a: Model,
    b: Model,
    *,
    groups: str | Iterable[str] | None = None,
    filters: str | Iterable[str] = (),
    norm: Norm = "raw",
    seed: int = 0,
    watch: Watch | None = None,
) -> Alignment:
    """Match the layers of two models by what their parameters say of the tokens both know.

    S(l, l') = mean |ρ(x, y)| over all vectors x of layer l of A and y of layer l' of B, where ρ is
    Pearson's correlation over the shared tokens of x E_A and y E_B; the one-to-one match with the
    largest sum is the Hungarian algorithm's. Beside it, the same over the coordinates of x and y
    (feature space), where the widths agree. [DAR] §5.1. Depths, widths and tokenizers may differ.
    `groups`: some of K (K_gate and K_up), V, W_Q, W_K, W_V, W_O, by default all that both have;
    `filters` restrict the tokens; `seed` draws the matches that p-values are counted over;
    `watch(steps, total)` wraps the steps of the work, for a progress bar.
    Raises EmbspaceError for groups that cannot be compared, VocabularyError without shared tokens.
    """
    require_models(a, b)
    one_of(norm, NORMS, "norm")
    seed = checked_seed(seed)
    names, notes = chosen_groups(a, b, groups)
    shared = shared_tokens(a.vocabulary, b.vocabulary, filters=filters)
    spaces = ("vocabulary", "feature") if a.d == b.d else ("vocabulary",)
    results = {name: {s: Scores.empty(a.n_layers, b.n_layers) for s in spaces} for name in names}
    total = sum(len(pieces(a, n)) * len(pieces(b, n)) for n in names) * len(spaces)
    steps = _work(a, b, results, shared, norm)
    for _ in watch(steps, total) if watch else steps:
        pass
    found = {name: _group(scores, seed) for name, scores in results.items()}
    return Alignment(
        found,
        (a.n_layers, b.n_layers),
        shared.to_dict(),
        {"groups": list(names), "norm": norm, "filters": list(shared.filters), "seed": seed},
        {"a": a.provenance, "b": b.provenance},
        (*notes, *_tied(found), *_notes(a, b, shared, results)),
    )


def _work(
    a: Model,
    b: Model,
    results: dict[str, dict[str, Scores]],
    shared: SharedTokens,
    norm: Norm,
) -> Iterator[None]:
    """Fill the scores, a yield a step; the vocabulary is passed over first."""
    spaces: dict[str, Space] = {
        "vocabulary": VocabularyCorrelation(a.vocabulary.table, b.vocabulary.table, shared),
        "feature": FeatureCorrelation(),
    }
    for name, by_space in results.items():
        for space, scores in by_space.items():
            yield from scores.add(pieces(a, name, norm), pieces(b, name, norm), spaces[space])


def _group(scores: dict[str, Scores], seed: int) -> GroupAlignment:
    found = {
        space: match_layers(each.means, seed=seed, unmatched=each.unmatched)
        for space, each in scores.items()
    }
    return GroupAlignment(found["vocabulary"], found.get("feature"))


def require_models(a: Any, b: Any) -> None:
    """Two models on one device in one dtype. Raises EmbspaceError for anything else."""
    for model in (a, b):
        if not isinstance(model, Model):
            shown = f"{type(model).__name__}: open it with embspace.load first"
            raise EmbspaceError(f"align compares two models, not a {shown}.")
    if a.device != b.device or a.dtype != b.dtype:
        raise EmbspaceError(
            f"both models must be on one device in one dtype: {a.name} is {a.dtype} on {a.device}, "
            f"{b.name} is {b.dtype} on {b.device}."
        )


def _tied(groups: dict[str, GroupAlignment]) -> Iterator[str]:
    """A sentence for each match that is one of several."""
    for name, group in groups.items():
        for space, found in group.spaces().items():
            yield from tied(f"{name} in {space} space", found)


def _notes(
    a: Model, b: Model, shared: SharedTokens, results: dict[str, dict[str, Scores]]
) -> Iterator[str]:
    """What a reader must know, one sentence each."""
    if a.d != b.d:
        yield f"No feature space: the widths differ ({a.d} and {b.d})."
    if len(shared) <= max(a.d, b.d):
        yield (
            f"Only {len(shared)} tokens are shared, no more than the width {max(a.d, b.d)}: "
            "correlations over so few say little."
        )
    for name, by_space in results.items():
        for space, scores in by_space.items():
            yield from _unmatched(a, b, f"{name} in {space} space", scores)
    for model in dict.fromkeys((a, b)):
        yield from (f"{model.name}: {note}" for note in model.notes if "W_QK" not in note)


def _unmatched(a: Model, b: Model, where: str, scores: Scores) -> Iterator[str]:
    for model, unmatched, n in zip((a, b), scores.unmatched, scores.n_constant, strict=True):
        for why in dict.fromkeys(unmatched.values()):
            layers = numbers([layer for layer, reason in unmatched.items() if reason == why])
            yield f"{where}: {layers} of {model.name} unmatched ({why})."
        if n and not unmatched:
            yield f"{where}: {n} constant vectors of {model.name} left out."
