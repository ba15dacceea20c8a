"""Do maps fitted on one kind of text serve another? Fit on each, score on both. [DIN] App."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..checking import indices
from ..errors import ModelError, TextError
from ..progress import Progress
from ..results import Result
from ..text.splits import split
from ..text.text import AnyText, Text, mark_of
from .decoding import why_no_head
from .fit import fit
from .run_record import CHANGED
from .score import KS, LayerScore, score
from .solve import Kind

if TYPE_CHECKING:
    from ..weights.model import Model

RECORDED = (
    "positions",
    "seed",
    "max_tokens",
    "special_tokens",
    "skip_first",
    "run_dtype",
    "batch_tokens",
)
MEASURES = (*(f"precision@{k}" for k in KS), "surprisal", "kl")


@dataclass(frozen=True)
class Transfer(Result):
    """Scores of maps fitted on each text, on held-out lines of each.

    scores: (fitted on, scored on) -> one score a layer; identity: scored on -> the same for id.
    change: scored on -> measure -> mean over layers of (fitted elsewhere - fitted here), the
    paper's number: negative Precision is lost by the foreign text.
    """

    texts: tuple[str, ...]
    scores: dict[tuple[str, str], tuple[LayerScore, ...]]
    identity: dict[str, tuple[LayerScore, ...]]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def change(self) -> dict[str, dict[str, float]]:
        """Mean over layers of what is gained (lost, if negative) by fitting on the other text."""
        found = {}
        for on in self.texts:
            other = next(name for name in self.texts if name != on)
            found[on] = {m: self.mean(other, on, m) - self.mean(on, on, m) for m in MEASURES}
        return found

    def mean(self, fitted: str, scored: str, measure: str) -> float:
        """A measure's mean over layers; fitted "id" is the identity."""
        each = self.identity[scored] if fitted == "id" else self.scores[fitted, scored]
        return sum(one.means[measure] for one in each) / len(each)

    def to_dict(self) -> dict[str, Any]:
        """Scores by text fitted and text scored, the identity's, and the change."""
        return {
            "texts": list(self.texts),
            "scores": {
                fitted: {
                    scored: {str(s.layer): s.to_dict() for s in self.scores[fitted, scored]}
                    for scored in self.texts
                }
                for fitted in self.texts
            },
            "id": {
                on: {str(s.layer): s.to_dict() for s in each} for on, each in self.identity.items()
            },
            "change": self.change,
            "settings": self.settings,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer, text fitted (or id) and text scored."""
        every = {**self.scores, **{("id", on): each for on, each in self.identity.items()}}
        return [
            {"fitted": fitted, "scored": scored, "layer": one.layer} | one.flat()
            for (fitted, scored), each in every.items()
            for one in each
        ]


def transfer(
    model: "Model",
    first: AnyText,
    second: AnyText,
    *,
    rows: int | None = None,
    layers: Iterable[int] | None = None,
    kind: Kind = "mat",
    progress: Progress | None = None,
) -> Transfer:
    """Fit maps on each of two texts and score both on held-out lines of each.

    Both fits see equally many rows, so that a difference is of the kind of text. rows: at most so
    many lines of each to fit. Raises TextError, ModelError for a model without prediction head.
    """
    reason = why_no_head(model)
    if reason:
        raise ModelError(reason)
    layers = None if layers is None else indices(layers, model.n_layers + 1, "layer")
    texts = _apart(Text.read(first), Text.read(second))
    splits = {text.source: split(text) for text in texts}
    n = min(rows or 1 << 62, *(len(lines.fit) for lines in splits.values()))
    maps = {}
    for text in texts:
        here = replace(text, fit=splits[text.source].fit[:n], held_out=0.0)
        maps[text.source] = fit(model, here, kind=kind, progress=progress)
    scores, identity, notes = {}, {}, []
    record: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    for text in texts:
        on = text.source
        here = replace(text, held_out=splits[on].score)
        for name, each in maps.items():
            found = score(model, each, here, layers=layers, progress=progress)
            scores[name, on] = found.layers[each.kind]
            identity[on] = found.layers["id"]
            notes += found.notes
            record, changes[on] = found.settings, found.settings.get(CHANGED)
    settings = {
        "rows_fitted": n,
        "kind": kind,
        **{name: record[name] for name in RECORDED},
        "text_hashes": {c.source: c.digest for c in texts},
        **({CHANGED: changes} if any(changes.values()) else {}),
    }
    return Transfer(
        tuple(c.source for c in texts),
        scores,
        identity,
        settings,
        tuple(dict.fromkeys(notes)),
        model.provenance,
    )


def _apart(first: Text, second: Text) -> tuple[Text, Text]:
    """The two texts under different names and without common lines."""
    marks = {mark_of(line) for line in first.lines}
    lines = tuple(line for line in second.lines if mark_of(line) not in marks)
    if not lines:
        raise TextError(f"{first.source} and {second.source} hold the same text.")
    name = second.source if second.source != first.source else f"{second.source} (2)"
    return first, replace(second, lines=lines, source=name)
