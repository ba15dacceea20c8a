"""How alike the states of two models are, state by state, on the same words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import positive
from ..live.capture import capture_all
from ..live.running import run
from ..results import Result
from ..text.text import AnyText, Text
from ..text.words import PairedWords, paired_words
from .alignment import Watch, require_models
from .matching import LayerMatch, match_layers, tied
from .similarity import (
    Centred,
    LinearFit,
    cka_of,
    debiased_hsic,
    is_constant,
    largest_rows,
    orthogonal_procrustes,
    split_by_text,
)

if TYPE_CHECKING:
    from ..text.passages import Passage
    from ..weights.model import Model

WORDS = 3000  # that states are taken at, unless told otherwise
HELD_OUT = 0.25  # share of the texts
CONSTANT = "it is the same at all words"
OUTLIER = 10.0  # a longest row so many times the median one is named
States = Float[Tensor, "layers n d"]


@dataclass(frozen=True)
class StateAlignment(Result):
    """Measures between states 0 … L_a of A and 0 … L_b of B; those that n allows.

    cka: debiased linear CKA over all words; procrustes: mean cosine of held-out states after the
    best rotation; least_squares: mean r² over coordinates of held-out states of B predicted from
    A's. `shuffled`: the mean of the matched pairs when B's words are permuted. `words`: n, those
    held out, and how many were left out and why; `widths`: d of both.
    """

    measures: dict[str, LayerMatch]
    shuffled: dict[str, float | None]
    words: dict[str, int]
    widths: tuple[int, int]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Measures, baselines, words, widths, settings, provenance and notes."""
        return {
            "states": {name: found.to_dict() for name, found in self.measures.items()},
            "shuffled": self.shuffled,
            "words": self.words,
            "widths": {"a": self.widths[0], "b": self.widths[1]},
            "settings": self.settings,
            "provenance": self.provenance,
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair of states: its score by a measure, and whether the two are matched."""
        return [
            {"measure": name, "state_a": i, "state_b": j}
            | {"score": score, "matched": found.match[i] == j}
            for name, found in self.measures.items()
            for i, row in enumerate(found.score)
            for j, score in enumerate(row)
        ]


def align_states(
    a: "Model",
    b: "Model",
    text: AnyText,
    *,
    words: int = WORDS,
    watch: Watch | None = None,
) -> StateAlignment:
    """Compare the states of two models at the last tokens of the same words, found by their
    character spans.

    `text`: see `Text`. Sentences are drawn from it by its seed until they hold `words` words; fits
    are scored on a quarter of those, drawn by the seed too. Where the words to fit
    on are no more than a width there are no fits (they would be perfect for any states), and a
    note says so. `watch(steps, total)` wraps the steps.
    Raises EmbspaceError for models that cannot run, TextError for texts that do not suit them.
    """
    require_models(a, b)
    words, text = positive(words, "words"), Text.read(text)
    seed = text.seed
    paired = paired_words(a, b, text, words)
    x, y = _states(a, paired.a), _states(b, paired.b)
    lines = torch.tensor([p.line for p in paired.a for _ in p.keep])
    fitted, held = split_by_text(lines, HELD_OUT, seed)
    work = _Comparison(x, y, fitted, held)
    steps = work.steps()
    for _ in watch(steps, len(x)) if watch else steps:
        pass
    found = {
        name: match_layers(score, seed=seed, unmatched=work.unmatched)
        for name, score in work.scores.items()
    }
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(seed))
    counts = {"n": len(paired), "fitted": len(fitted), "held_out": len(held)}
    return StateAlignment(
        found,
        work.shuffled(found, order),
        counts | _left_out(paired),
        (a.d, b.d),
        {"words": words, "seed": seed, "text": text.source, "text_hash": text.digest},
        {"a": a.provenance, "b": b.provenance},
        (*_tied(found), *_notes(a, b, x, y, work)),
    )


class _Comparison:
    """All measures between all pairs of states."""

    def __init__(self, x: States, y: States, fitted: Tensor, held: Tensor) -> None:
        self.x, self.y, self.fitted, self.held = x, y, fitted, held
        self.n, self.d = len(fitted), max(x.shape[2], y.shape[2])
        names = ["cka"]
        names += ["procrustes"] if self.n > self.d else []
        names += ["least_squares"] if self.n > x.shape[2] else []
        shape = len(x), len(y)
        self.scores = {n: torch.full(shape, torch.nan, dtype=torch.float64) for n in names}
        self.unmatched = _constant(x), _constant(y)
        self.of_y = [Centred.of(each) for each in y]
        self.own_y = [debiased_hsic(each, each) for each in self.of_y]

    def steps(self) -> Iterator[None]:
        """Fill the scores, a yield a state of A."""
        for i in range(len(self.x)):
            for name, values in self._row(i, self.y, self.of_y, range(len(self.y))).items():
                self.scores[name][i] = torch.tensor(values, dtype=torch.float64)
            yield
        for scores in self.scores.values():
            scores[list(self.unmatched[0])] = torch.nan
            scores[:, list(self.unmatched[1])] = torch.nan

    def shuffled(self, found: dict[str, LayerMatch], order: Tensor) -> dict[str, float | None]:
        """Mean of the matched pairs of each measure with B's words in another order."""
        values: dict[str, list[float]] = {name: [] for name in found}
        for name, match in found.items():
            for i, j in match.pairs:
                y = [self.y[j][order]]
                values[name] += self._row(i, y, [Centred.of(y[0])], [j], only=name)[name]
        return {name: sum(v) / len(v) if v else None for name, v in values.items()}

    def _row(
        self,
        i: int,
        ys: Sequence[Tensor] | Tensor,
        of_y: list[Centred],
        numbers: Iterable[int],
        only: str | None = None,
    ) -> dict[str, list[float]]:
        """One state of A against some of B, in every measure (or only one)."""
        wanted = [name for name in self.scores if only in (None, name)]
        x, fitted, held = self.x[i], self.fitted, self.held
        found: dict[str, list[float]] = {}
        if "cka" in wanted:
            one = Centred.of(x)
            own = debiased_hsic(one, one)
            pairs = zip(of_y, numbers, strict=True)
            found["cka"] = [cka_of(one, other, own, self.own_y[j]) for other, j in pairs]
        if "procrustes" in wanted:
            found["procrustes"] = [
                orthogonal_procrustes(x[fitted], y[fitted]).cosine(x[held], y[held]) for y in ys
            ]
        if "least_squares" in wanted:
            fit = LinearFit(x[fitted])
            found["least_squares"] = [fit.r2(y[fitted], x[held], y[held]) for y in ys]
        return found


def _states(model: "Model", passes: "tuple[Passage, ...]") -> States:
    """States 0 … L at the words, in their order."""
    return capture_all(run(model), passes, dtype=torch.float32, device="cpu").stacked()


def _constant(states: States) -> dict[int, str]:
    """States that say nothing, and why; any score of theirs would be one by accident."""
    return {l: CONSTANT for l, x in enumerate(states) if is_constant(x)}


def _left_out(paired: PairedWords) -> dict[str, int]:
    return {
        "split": paired.n_split,
        "cut": paired.n_cut,
        "first": paired.n_first,
        "unread_texts": paired.n_unread,
    }


def _tied(measures: dict[str, LayerMatch]) -> Iterator[str]:
    """A sentence for each match that is one of several."""
    for name, found in measures.items():
        yield from tied(name.replace("_", " "), found)


def _notes(a: "Model", b: "Model", x: States, y: States, work: _Comparison) -> Iterator[str]:
    for name, what, width in (
        ("procrustes", "rotation", work.d),
        ("least_squares", "least-squares map", x.shape[2]),
    ):
        if name not in work.scores:
            yield (
                f"No {what}: {work.n} words to fit on are no more than the width {width}, so that "
                "it would fit any states; give more text or more words."
            )
    for model, states, dead in ((a, x, work.unmatched[0]), (b, y, work.unmatched[1])):
        if dead:
            named = ", ".join(map(str, dead))
            yield f"{model.name}: state {named} stays unmatched, because {CONSTANT}."
        ratios = {l: largest_rows(each) for l, each in enumerate(states) if l not in dead}
        worst = max(ratios, key=lambda l: ratios[l], default=None)
        if worst is not None and ratios[worst] > OUTLIER:
            yield (
                f"{model.name}: the longest state {worst} is {ratios[worst]:.0f} times the median "
                "one; a few such words own most of CKA."
            )
