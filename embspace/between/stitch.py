"""`stitch`: which of A's states does B's fine-tuned end understand? [DAR] §5.2."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checking import indices
from ..checking import seed as checked_seed
from ..errors import EmbspaceError, TextError
from ..live.capture import StateError, batches, padded
from ..live.recorder import states_of
from ..live.running import Running, run
from ..text.labelled import Labelled, read_test
from ..text.passages import Passage
from ..weights.model import Model
from .accuracy import Accuracy, accuracy, chance
from .carrying import Carrying, scale_between
from .classifier import Head, is_classifier, predictions, read_head
from .classifier_folder import read_marks
from .classifier_texts import KEEPS, Keep, longest, padding, read_texts
from .shared_tokens import SharedTokens, shared_tokens
from .stitch_kernel import Kernel, Kind, kernel, shuffled, turned
from .stitch_result import Cut, Stitching
from .stitched_model import Stitched

BATCH_TOKENS = 2048
N_TEXTS = 400  # ± 5 % at most; every cut and control runs on each of them
REAL, TURNED, SHUFFLED = "real", "turned", "shuffled"
Watch = Callable[[Iterable[None], int], Iterable[None]]
Found = dict[tuple[str, int, int], list[int]]  # (kernel, kept, transplanted) -> labels by text


def stitch(
    a: Model,
    b: Model,
    data: str | Path | Labelled,
    *,
    keep: Iterable[int] | None = None,
    transplant: Iterable[int] | None = None,
    kind: Kind = "pinv",
    carry: Carrying | None = None,
    controls: bool = True,
    n_test: int = N_TEXTS,
    max_tokens: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> Stitching:
    """Accuracy of A's first a blocks, K = E_A E_B^+, B's last b blocks and classifier, for a and b.

    A is pretrained only, B fine-tuned (`finetune`); nothing is trained. `keep`: values of a, by
    default 0 … L_A; `transplant`: values of b, by default 1 … the number of blocks trained in B.
    The best cut is chosen on one half of the texts and scored on the other. `carry`: how states are
    carried beside K (by default K is scaled by one number, so that the scale of neither stream
    matters). `controls`: the same with a random kernel of equal spectrum, and with shared tokens
    paired at random. `data`: as in
    `read_split`, of which the test texts are taken, less those that B was trained on.
    `watch(steps, total)` wraps the batches. Raises EmbspaceError.
    """
    head, seed, carry = _head_of(a, b), checked_seed(seed), carry or Carrying()
    cuts = _cuts(a, b, head, keep, transplant)
    columns = {"text_column": text_column, "label_column": label_column}
    texts, n_seen = _texts(b, head, data, {"n_test": n_test, "seed": seed, **columns})
    end = _end(head)
    length = max_tokens or min(longest(a, b), head.record.get("max_tokens") or 10**9)
    read = [read_texts(m, texts.texts, max_tokens=length, keep=end) for m in (a, b)]
    shared = shared_tokens(a.vocabulary, b.vocabulary)
    found_kernel = kernel(a.vocabulary, b.vocabulary, shared, kind)
    matrices = _matrices(a, b, shared, found_kernel, seed if controls else None)
    running = run(a, attention="fast"), run(b, attention="fast")
    scales = {name: scale_between(*running, m, shared, carry) for name, m in matrices.items()}
    matrices = {name: matrix * scales[name] for name, matrix in matrices.items()}
    sweep = Sweep(running, head, matrices, cuts, [p for p, _ in read], carry)
    for _ in watch(sweep.steps(), sweep.n_steps) if watch else sweep.steps():
        pass
    settings = {
        "kernel": kind,
        "carry": carry.to_dict() | {"scale": scales[REAL]},
        "keep": sorted({kept for kept, _ in cuts}),
        "transplant": sorted({n for _, n in cuts}),
        "controls": controls,
        "max_tokens": length,
        "end": end,
        "n_texts": len(texts),
        "data": str(data if isinstance(data, str | Path) else "given"),
        "digest": texts.digest,
        "seed": seed,
    }
    notes = tuple(_notes(a, b, head, n_seen, read[0][1], found_kernel))
    return _result(sweep, texts, cuts, settings, notes, shared, found_kernel, (a, b))


class Sweep:
    """Runs both models over the texts once, and every cut on A's states as they come."""

    def __init__(
        self,
        running: tuple[Running, Running],
        head: Head,
        matrices: dict[str, Tensor],
        cuts: list[tuple[int, int]],
        passages: Sequence[Sequence[Passage]],
        carry: Carrying,
    ) -> None:
        self.a, self.b = running
        self.head, self.cuts, self.passages = head, cuts, passages
        self.stitched = {
            (name, kept, n): Stitched(
                self.a, self.b, matrix, n_kept=kept, n_transplanted=n, head=head, carry=carry
            )
            for name, matrix in matrices.items()
            for kept, n in cuts
        }
        self.found: Found = {key: [0] * len(passages[0]) for key in self.stitched}
        self.own: list[int] = []
        self.batches = list(batches(passages[0], BATCH_TOKENS))

    @property
    def n_steps(self) -> int:
        """B alone, then one step a batch."""
        return 1 + len(self.batches)

    def steps(self) -> Iterator[None]:
        """Do the work, yielding after every step."""
        self.own = predictions(self.b, self.passages[1], self.head.scores)
        yield
        for batch in self.batches:
            self._batch(batch)
            yield

    def _batch(self, batch: list[Passage]) -> None:
        device = self.a.model.device
        ids, mask = (x.to(device) for x in padded(batch, padding(self.a.model)))
        with torch.no_grad():
            states = states_of(self.a, ids, mask, {kept for kept, _ in self.cuts})
            for kept, state in states.items():
                _check_finite(state[mask.bool()], kept, self.a)
            for key, stitched in self.stitched.items():
                labels = stitched.scores(states[key[1]], mask.to(self.b.model.device)).argmax(1)
                for one, label in zip(batch, labels.tolist(), strict=True):
                    self.found[key][one.line] = label


def _result(
    sweep: Sweep,
    texts: Labelled,
    cuts: list[tuple[int, int]],
    settings: dict[str, Any],
    notes: tuple[str, ...],
    shared: SharedTokens,
    found_kernel: Kernel,
    models: tuple[Model, Model],
) -> Stitching:
    halves = _halves(len(texts), settings["seed"])
    rows = tuple(_cut(sweep, texts.labels, halves, kept, n) for kept, n in cuts)
    best = max(rows, key=lambda cut: cut.choosing.right)
    own, by_chance = accuracy(sweep.own, texts.labels), chance(texts.labels)
    notes = (*_doubts(own, best, by_chance), *notes)
    return Stitching(
        rows,
        best,
        own,
        _of(sweep.own, texts.labels, halves[1]),
        by_chance,
        texts.names,
        found_kernel.to_dict(),
        shared.to_dict(),
        settings,
        {side: model.provenance for side, model in zip("ab", models, strict=True)},
        notes,
    )


def _doubts(own: Accuracy, best: Cut, by_chance: float) -> Iterator[str]:
    """What the accuracies do not show, said first."""
    if not own.above(by_chance):
        yield "B alone is no better than chance on these texts: stitching it can show nothing here."
    elif not best.scoring.above(by_chance):
        yield "The best cut is no better than chance on the other half of the texts."


def _cut(
    sweep: Sweep, truth: Sequence[int], halves: tuple[list[int], list[int]], kept: int, n: int
) -> Cut:
    def found(name: str) -> Any:
        predicted = sweep.found.get((name, kept, n))
        return None if predicted is None else accuracy(predicted, truth)

    real = sweep.found[REAL, kept, n]
    choosing, scoring = (_of(real, truth, half) for half in halves)
    return Cut(kept, n, accuracy(real, truth), choosing, scoring, found(TURNED), found(SHUFFLED))


def _of(predicted: Sequence[int], truth: Sequence[int], chosen: list[int]) -> Any:
    return accuracy([predicted[i] for i in chosen], [truth[i] for i in chosen])


def _halves(n: int, seed: int) -> tuple[list[int], list[int]]:
    """Texts that choose the best cut, and texts that it is scored on."""
    order = random.Random(f"halves {seed}").sample(range(n), n)
    return order[: n // 2], order[n // 2 :]


def _matrices(
    a: Model, b: Model, shared: SharedTokens, found: Kernel, seed: int | None
) -> dict[str, Tensor]:
    """The kernel and, with a seed, its two controls."""
    if seed is None:
        return {REAL: found.matrix}
    order = shuffled(len(shared), seed)
    wrong = kernel(a.vocabulary, b.vocabulary, shared, found.kind, order=order)
    return {REAL: found.matrix, TURNED: turned(found.matrix, seed), SHUFFLED: wrong.matrix}


def _head_of(a: Any, b: Any) -> Head:
    for model in (a, b):
        if not isinstance(model, Model):
            shown = f"{type(model).__name__}: open it with embspace.load first"
            raise EmbspaceError(f"stitch joins two models, not a {shown}.")
    return read_head(b)


def _cuts(a: Model, b: Model, head: Head, keep: Any, transplant: Any) -> list[tuple[int, int]]:
    """(kept, transplanted) of every stitched model. Raises EmbspaceError for other numbers."""
    most = a.n_layers + 1, b.n_layers + 1
    kept = range(most[0]) if keep is None else indices(keep, most[0], "kept blocks")
    default = range(min(1, head.n_blocks), head.n_blocks + 1)
    last = default if transplant is None else indices(transplant, most[1], "transplanted blocks")
    found = [(i, n) for n in dict.fromkeys(last) for i in dict.fromkeys(kept)]
    if not found:
        raise EmbspaceError("give at least one number of kept and of transplanted blocks.")
    return found


def _texts(b: Model, head: Head, data: Any, options: dict[str, Any]) -> tuple[Labelled, int]:
    """Test texts that B was not trained on, labelled as its head is, and how many it was."""
    texts = data if isinstance(data, Labelled) else read_test(data, **options)
    kept = texts.without(read_marks(b)).named(head.labels)
    if len(kept) < 2:
        raise TextError("fewer than two texts are left to choose the best cut by and to score it.")
    return kept, len(texts) - len(kept)


def _end(head: Head) -> Keep:
    """Which end of a long text the classifier was trained on."""
    found = head.record.get("keep")
    return found if found in KEEPS else "start"


def _check_finite(state: Tensor, kept: int, running: Running) -> None:
    if not bool(torch.isfinite(state).all()):
        raise StateError(
            f"state {kept} of {running.model.name} holds NaN or infinity: it cannot be stitched."
        )


def _notes(a: Model, b: Model, head: Head, n_seen: int, n_cut: int, found: Kernel) -> Iterator[str]:
    if is_classifier(a.folder):
        yield f"{a.name} is fine-tuned itself, where the paper's A is pretrained only."
    if n_seen:
        yield f"{n_seen} texts that {b.name} was trained on were left out."
    if not read_marks(b):
        yield f"{b.name} does not say which texts it was trained on: none could be left out."
    if n_cut:
        yield f"{n_cut} texts were cut to fit."
    if found.rank < b.d:
        yield (
            f"The shared tokens span {found.rank} of the {b.d} directions of {b.name}: "
            "the kernel writes into no other."
        )
    for model in (a, b):
        if not model.has_head:
            yield f"{model.name} has no prediction head: E is its input embedding."
