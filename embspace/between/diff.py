"""`diff`: what fine-tuning changed, in words. [DAR] §4.3, App. D."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import positive, whole
from ..checking import seed as checked_seed
from ..errors import EmbspaceError, ModelError
from ..weights.model import Model
from .adapter import changes_of
from .classifier import is_classifier, read_head, tested
from .diff_result import Difference, LayerChange, MovedRow
from .layer_vectors import chosen_groups, pieces
from .origin import check_origin
from .task_words import TaskWords, WordScore, read_words

CLASSIFIER = "classifier"
SHOWN, SCORED, TOKENS, AT_ENDS, TURNS = 3, 20, 8, 50, 99
Watch = Callable[[Iterable[None], int], Iterable[None]]


@dataclass(frozen=True)
class Moved:
    """The rows of one group and layer that moved most: base rows, changes, their numbers."""

    base: Float[Tensor, "n d"]
    change: Float[Tensor, "n d"]
    numbers: list[int]


def diff(
    base: Model,
    tuned: Model | str | Path,
    *,
    groups: str | Iterable[str] | None = None,
    words: str | Path | None = None,
    rows: int = SHOWN,
    k: int = TOKENS,
    scored: int = SCORED,
    ends: int = AT_ENDS,
    turns: int = TURNS,
    seed: int = 0,
    watch: Watch | None = None,
) -> Difference:
    """Tuned minus base, row by row of K (gate and up apart), V, W_Q, W_K, W_V, W_O, as ± x E.

    `tuned`: a model of the base's shape, or the folder of a LoRA adapter, whose changes s B A are
    read from its factors alone. `rows`: how many of the most moved rows of each group and layer
    are read, with `k` tokens at either end. `words`: a file of the task's words, by default our
    own list for sentiment; of each group's `scored` most moved rows a layer, the `ends` tokens at
    either end are counted: which share of them is on the list, beside tokens drawn at random and
    (`turns` times) the same rows turned at random. [DAR] §4.3 finds sentiment in W_Q, W_K, W_V
    and K, not in V and W_O. `watch(steps, total)` wraps the layers.
    Raises EmbspaceError, where the models' shapes differ or `tuned` says it is of another base.
    """
    settings = {
        **{"rows": positive(rows, "rows"), "k": positive(k), "scored": positive(scored, "scored")},
        **{"ends": positive(ends, "ends"), "turns": _turns(turns), "seed": checked_seed(seed)},
    }
    other, changes, notes = _opened(base, tuned)
    names, _ = chosen_groups(base, base if changes else other, groups)
    task, word_list, unscored = _task(base, words, settings)
    work = _Work(base, other, bool(changes), task, settings, names)
    for _ in watch(work.steps(), work.n_steps) if watch else work.steps():
        pass
    directions, found = work.classifier()
    return Difference(
        tuple(work.layers),
        {**work.scores(), **found},
        directions,
        word_list,
        settings | {"groups": list(names)},
        {"base": base.provenance, "tuned": other.provenance},
        (*notes, *_tested(other), *unscored, *_unmoved(work)),
    )


def _tested(tuned: Model) -> Iterator[str]:
    """How good the classifier was on its own test texts, as its folder says."""
    if not is_classifier(tuned.folder):
        return
    head = read_head(tuned)
    if head.start is None:
        yield (
            f"{tuned.name} does not say how its classifier started: its directions hold what it "
            "started with, too."
        )
    found = tested(head.record)
    if found is None:
        return
    test, by_chance = found
    yield (
        f"{tuned.name} was right on {test.share:.1%} of {test.n} test texts (chance "
        f"{by_chance:.1%}), says its folder."
    )
    if not test.above(by_chance):
        yield "That is no better than chance: what changed need not be about the task."


class _Work:
    """Reads the groups layer by layer."""

    def __init__(
        self,
        base: Model,
        other: Model,
        is_change: bool,
        task: TaskWords | None,
        settings: dict[str, Any],
        names: tuple[str, ...],
    ) -> None:
        self.base, self.other, self.is_change = base, other, is_change
        self.task, self.settings, self.names = task, settings, names
        self.layers: list[LayerChange] = []
        self.moved: dict[str, list[Moved]] = {name: [] for name in names}

    @property
    def n_steps(self) -> int:
        """A step a group and layer, and one a group for its score."""
        return len(self.names) * (self.base.n_layers + 1)

    def steps(self) -> Iterator[None]:
        """Do the work, yielding after every step."""
        for name in self.names:
            for layer in range(self.base.n_layers):
                self._layer(name, layer)
                yield
        self._scores: dict[str, WordScore | None] = {}
        for name in self.names:
            self._scores[name] = self._pooled(name)
            yield

    def scores(self) -> dict[str, WordScore | None]:
        """For each group, the score of its scored rows of all layers; None where none moved."""
        return self._scores

    def classifier(self) -> tuple[tuple[MovedRow, ...], dict[str, WordScore]]:
        """What training did to the head's directions by label, less their mean; their score."""
        if not is_classifier(self.other.folder):
            return (), {}
        head = read_head(self.other)
        centred = (head.learned - head.learned.mean(0)).to(self.base.device, self.base.dtype)
        norms = centred.norm(dim=1).tolist()
        rows = self._read(centred, list(head.labels), norms, [None] * len(norms))
        if not all(norms) or not self.task:
            return rows, {}
        return rows, {CLASSIFIER: self._score(self.task, centred, None)}

    def _layer(self, name: str, layer: int) -> None:
        before, change = self._rows_of(name, layer)
        norms, own = change.norm(dim=1), before.norm(dim=1)
        order = norms.argsort(descending=True, stable=True)
        order = order[norms[order] > 0][: max(self.settings["scored"], self.settings["rows"])]
        numbers = order.tolist()
        shares = (norms / own.clamp_min(1e-30)).tolist()
        few = numbers[: self.settings["rows"]]
        read = self._read(
            change[few],
            [self._where(name, layer, i) for i in few],
            norms[few].tolist(),
            [shares[i] for i in few],
        )
        kept = numbers[: self.settings["scored"]]
        moved = Moved(before[kept], change[kept], kept)
        score = None
        if kept:
            self.moved[name].append(moved)
        if kept and self.task:
            score = self._score(self.task, moved.change, moved.base, turns=0)
        total = float(before.norm())
        self.layers.append(
            LayerChange(
                name,
                layer,
                len(change),
                int((norms > 0).sum()),
                float(norms.mean()),
                float(change.norm()) / total if total else 0.0,
                read,
                score,
            )
        )

    def _pooled(self, name: str) -> WordScore | None:
        """The score of a group's rows of all layers."""
        moved = self.moved[name]
        if not moved or not self.task:
            return None
        change, base = (torch.cat([getattr(m, end) for m in moved]) for end in ("change", "base"))
        return self._score(self.task, change, base)

    def _score(
        self, task: TaskWords, change: Tensor, base: Tensor | None, *, turns: int | None = None
    ) -> WordScore:
        return task.score(
            change,
            k=self.settings["ends"],
            turns=self.settings["turns"] if turns is None else turns,
            base=base,
        )

    def _rows_of(self, name: str, layer: int) -> tuple[Tensor, Tensor]:
        """Base rows and their changes, of all experts together."""
        before, after = (
            torch.cat([p.read() for p in pieces(model, name) if p.layer == layer])
            for model in (self.base, self.other)
        )
        return before, after if self.is_change else after - before

    def _read(
        self, vectors: Tensor, where: list[str], norms: list[float], shares: list[Any]
    ) -> tuple[MovedRow, ...]:
        """Vectors with the tokens at either end."""
        if not len(vectors):
            return ()
        space, k = self.base.vocabulary, self.settings["k"]
        up, down = (
            [
                [space.labels[i] for i in ids]
                for ids in space.top_ids(vectors, k, smallest=s)[0].tolist()
            ]
            for s in (False, True)
        )
        return tuple(
            MovedRow(name, norm, share, tuple(above), tuple(below))
            for name, norm, share, above, below in zip(where, norms, shares, up, down, strict=True)
        )

    def _where(self, name: str, layer: int, row: int) -> str:
        """A row by its head and column, or by its neuron."""
        if name.startswith("W_"):
            width = self.base.d_head
            part = "row" if name == "W_O" else "column"
            return f"head {row // width} {part} {row % width}"
        experts = self.base.experts(layer)
        each = len(self.base.feed_forward(layer, experts[0]).values)
        expert = "" if experts == [None] else f"expert {experts[row // each]} "
        return f"{expert}neuron {row % each}"


def _opened(base: Any, tuned: Any) -> tuple[Model, bool, tuple[str, ...]]:
    """The tuned model, or an adapter's changes as one; whether it is these; what to know of it."""
    if not isinstance(base, Model):
        raise EmbspaceError(
            f"diff compares two models, not a {type(base).__name__}: open it with embspace.load."
        )
    if not isinstance(tuned, Model):
        changes, adapter = changes_of(tuned, base)
        named = str(adapter.config.get("base_model_name_or_path") or "no model")
        note = (
            f"The adapter names {named[:120]} as its base; whether these are its weights is open."
        )
        return changes, True, (note, *_unread(base, adapter.changed))
    _check_shapes(base, tuned)
    check_origin(base, tuned)
    return tuned, False, _other_tables(base, tuned)


def _task(
    base: Model, words: str | Path | None, settings: dict[str, Any]
) -> tuple[TaskWords | None, dict[str, Any], tuple[str, ...]]:
    """The task's words, what to say of them, and why there are none.

    Only our own list may be of no use; one that was asked for is refused then.
    """
    listed, name = read_words(words)
    try:
        task = TaskWords(base.vocabulary, listed, name=name, seed=settings["seed"])
    except EmbspaceError as error:
        if words is not None:
            raise
        return None, {"name": name, "words": len(listed), "tokens": 0}, (f"No scores: {error}",)
    settings["ends"] = min(settings["ends"], max(1, int(task.candidates.sum()) // 2))
    return task, {"name": name, "words": len(listed), "tokens": len(task.ids)}, ()


def _check_shapes(base: Model, tuned: Model) -> None:
    for what in ("d", "n_layers", "n_heads", "n_kv_heads", "d_head"):
        one, other = getattr(base, what), getattr(tuned, what)
        if one != other:
            raise ModelError(
                f"{tuned.name} is no fine-tuned {base.name}: its {what} is {other}, not {one}."
            )
    if base.dtype != tuned.dtype or base.device != tuned.device:
        raise EmbspaceError("both models must be on one device in one dtype.")


def _other_tables(base: Model, tuned: Model) -> tuple[str, ...]:
    """A sentence where the tuned model's E is not the base's."""
    one, other = base.vocabulary.table, tuned.vocabulary.table
    if one.shape == other.shape and all(
        bool((x.to(base.dtype) == y.to(base.dtype)).all())
        for x, y in zip(one.split(8192), other.split(8192), strict=True)
    ):
        return ()
    return ("The two models' embeddings differ: changes are read with the base's E.",)


def _unread(base: Model, changed: list[str]) -> tuple[str, ...]:
    """A sentence for what an adapter changes outside the groups."""
    blocks = [base.layout.block(l) for l in range(base.n_layers)]
    outside = [name for name in changed if not any(name.startswith(b) for b in blocks)]
    return (f"Changed too, but in no group: {', '.join(outside)[:200]}.",) if outside else ()


def _unmoved(work: _Work) -> Iterator[str]:
    still = [name for name in work.names if not work.moved[name]]
    if still and len(still) < len(work.names):
        yield f"Nothing moved in {', '.join(still)}."
    elif still:
        yield "Nothing moved in any group: the weights are the same."


def _turns(n: Any) -> int:
    n = whole(n, "turns")
    if n < 0:
        raise EmbspaceError(f"turns must be at least 0, got {n}.")
    return n
