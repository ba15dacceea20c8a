"""Which reading of a model's heads means something, layer band by layer band, measured.

Two measures of each combination of source side, centring, unit rows and norms: how well heads
promote the pairs of known relations, and how well readings agree with what heads do on a text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from ..errors import EmbspaceError
from ..estimate import Estimate, estimate
from ..live.running import run
from ..live.tape import recorded
from ..read.default_reading import keep_readings
from ..read.reading import Reading
from ..read.sides import has_first_mlp, source_name
from ..results import ListResult, Record
from ..text.text import AnyText
from ..weights.model import writing
from .agreement import Agreement
from .head_trust import Trusting
from .relation_sets import RelationSet
from .relations import SIGNIFICANT, Relations, ScoringRelations

if TYPE_CHECKING:
    from ..weights.model import Model

BANDS = 5  # of depth


@dataclass(frozen=True)
class MeasuredReading(Record):
    """One reading in one band of layers.

    recall: mean over relations of the largest share that a head of the band promotes beyond chance
    (0 where none does); its interval is over relations. heads: how many heads hold a relation.
    best, relation: the head with the largest such share, and which relation. agreement: of W_VO
    rows with what heads write on the text, mean over heads; its interval is over texts.
    """

    layers: tuple[int, int]  # first and last
    reading: str
    norm: str
    recall: Estimate
    heads: int
    best: str
    relation: str
    agreement: Estimate | None


@dataclass(frozen=True)
class ReadingChoice(ListResult):
    """Readings by band of layers, the best of each first, and what follows."""

    ITEMS = "readings"
    readings: tuple[MeasuredReading, ...]
    advice: str
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row a band and reading."""
        return [
            {"first": one.layers[0], "last": one.layers[1], "reading": one.reading}
            | {"norm": one.norm, "heads": one.heads, "best": one.best, "relation": one.relation}
            | one.recall.cells("recall")
            | (one.agreement or Estimate(float("nan"), None, None, 0)).cells("agreement")
            for one in self
        ]


def candidates(model: "Model") -> tuple[Reading, ...]:
    """The readings worth trying: each source of weights alone, plain, centred, with unit rows.

    Also with folded norms, plain and with both, where the model's norms fold.
    """
    sources: list[Any] = [source_name(model)] + ["first-mlp"] * has_first_mlp(model)
    found = []
    for source in sources:
        for centre, unit in ((False, False), (True, False), (False, True), (True, True)):
            found.append(Reading(source=source, centre=centre, unit=unit))
        if _folds(model):
            found += [
                Reading(source=source, norm="folded", centre=both, unit=both)
                for both in (False, True)
            ]
    return tuple(found)


def _folds(model: "Model") -> bool:
    try:
        writing(model, 0, "attn", "folded")
    except EmbspaceError:
        return False
    return True


class ChoosingReadings:
    """`choose_readings` step by step: iterate, then ask for `result` and `kept`."""

    def __init__(
        self,
        model: "Model",
        text: AnyText | None = None,
        *,
        sets: Iterable[RelationSet] | None = None,
        readings: Sequence[Reading] | None = None,
    ) -> None:
        self.model = model
        self.readings = tuple(candidates(model) if readings is None else readings)
        self.scoring = [ScoringRelations(model, sets, reading=one) for one in self.readings]
        self.trusting = Trusting(model, text)
        self.agreements = [Agreement(model, one, self.trusting.texts) for one in self.readings]
        self._relations: list[Relations] = []

    def __len__(self) -> int:
        return sum(map(len, self.scoring)) + len(self.trusting.texts)

    def __iter__(self) -> Iterator[int]:
        for scoring in self.scoring:
            yield from scoring
            self._relations.append(scoring.result())
        texts = [framed.ids for framed in self.trusting.texts]
        for batch in recorded(run(self.model), texts, self._note):
            yield from batch

    def result(self) -> ReadingChoice:
        """Every reading in every band, best first."""
        found = []
        for band in self.bands():
            of_band = [self._measured(n, band) for n in range(len(self.readings))]
            found += sorted(of_band, key=_rank, reverse=True)
        settings = {
            "text": self.trusting.text.source,
            "n_texts": len(self.trusting.texts),
            "relations": len(self._relations[0].relations),
            "pairs": sum(one.pairs for one in self._relations[0].relations.values()),
        }
        notes = self._relations[0].notes
        advice = _advice([one for one in found if one.heads], self.model.n_layers)
        return ReadingChoice(tuple(found), advice, settings, self.model.provenance, notes)

    def keep(self, result: ReadingChoice) -> int:
        """Make each band's best reading the default of its layers; how many layers have one.

        A band in which no reading finds a relation is left to the rule. Raises EmbspaceError where
        the cache cannot be written.
        """
        by_name = {(one.name, one.norm): one for one in self.readings}
        found = {}
        for band in self.bands():
            best = next(one for one in result if one.layers == (band[0], band[-1]))
            if best.heads:
                found |= dict.fromkeys(band, by_name[best.reading, best.norm])
        how = f"measured on {result.settings['relations']} relations"
        if found:
            keep_readings(self.model, found, how)
        return len(found)

    def bands(self) -> list[range]:
        """Layers in up to five bands of even depth."""
        n = self.model.n_layers
        ends = sorted({n * at // BANDS for at in range(BANDS + 1)})
        return [range(a, b) for a, b in pairwise(ends)]

    def _note(self, *given: Any) -> None:
        for agreement in self.agreements:
            agreement.note(*given)

    def _measured(self, n: int, band: range) -> MeasuredReading:
        relations, reading = self._relations[n], self.readings[n]
        held = {
            (x, h, name): one.promote[x][h]
            for name, one in relations.relations.items()
            for x in band
            for h in range(self.model.n_heads)
            if one.p[x][h] < SIGNIFICANT
        }
        best = max(held, key=lambda at: held[at], default=None)
        names = relations.relations
        largest = [
            max((s for at, s in held.items() if at[2] == name), default=0.0) for name in names
        ]
        return MeasuredReading(
            (band[0], band[-1]),
            reading.name,
            reading.norm,
            estimate(torch.tensor(largest)),
            len({at[:2] for at in held}),
            "" if best is None else f"{best[0]}.{best[1]}",
            "" if best is None else best[2],
            _agreement(self.agreements[n], band),
        )


def choose_readings(
    model: "Model",
    text: AnyText | None = None,
    *,
    sets: Iterable[RelationSet] | None = None,
    readings: Sequence[Reading] | None = None,
    keep: bool = True,
) -> ReadingChoice:
    """Measure which reading of a model's heads means something, and make it the default.

    Args:
        model: one that can be run.
        text: on which readings are compared with what heads do (default: a few sentences).
        sets: relations; by default those that ship with the package.
        readings: by default `candidates(model)`.
        keep: make the best reading of each band of layers the default on this machine.

    Returns:
        Readings by band of layers, best first, with 95 % intervals.

    Raises:
        EmbspaceError: the model cannot be run, no relation has pairs of its tokens, or the cache
            cannot be written.
    """
    choosing = ChoosingReadings(model, text, sets=sets, readings=readings)
    for _ in choosing:
        pass
    result = choosing.result()
    if keep:
        choosing.keep(result)
    return result


def _rank(one: MeasuredReading) -> tuple[float, int, float]:
    return one.recall.mean, one.heads, one.agreement.mean if one.agreement else 0.0


def _agreement(found: Agreement, band: range) -> Estimate | None:
    """Mean over a band's heads of their own readings' agreement, each text as one draw."""
    own = torch.stack([found.vo.means(layer).diagonal(dim1=1, dim2=2) for layer in band])
    by_text = own.nanmean(dim=(0, 2))
    by_text = by_text[by_text.isfinite()]
    return estimate(by_text) if len(by_text) else None


def _advice(held: Sequence[MeasuredReading], n_layers: int) -> str:
    if not held:
        return "No reading finds a relation: the heads' pairs are to be read with care."
    best: dict[tuple[int, int], str] = {}
    for one in held:
        norms = "" if one.norm == "raw" else f", {one.norm} norms"
        best.setdefault(one.layers, one.reading + norms)
    said = "; ".join(f"layers {first}-{last}: {name}" for (first, last), name in best.items())
    if len(set(best.values())) == 1 and max(last for _, last in best) == n_layers - 1:
        said = f"all layers with a relation: {next(iter(best.values()))}"
    return f"Read {said}."
