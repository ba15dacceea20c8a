"""Alternate blocks of a model with jumps by its maps, and measure what is left of it. [DIN] §6"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checking import indices, positive
from ..errors import MapsError
from ..intervals import Bootstrap, Interval
from ..live.capture import capture
from ..live.running import Running, start_model
from ..maps.maps import Maps
from ..maps.run_record import batch_changes, record_of
from ..maps.score import plan_of, r2_of_pairs, require_own_kind
from ..maps.solve import Kind
from ..maps.sums import Sums
from ..progress import Progress
from ..results import Result
from ..text.passages import Passages, passages
from ..text.text import AnyText, Text
from .beam_search import beam_search
from .halves import halves
from .jumps import Jumped, Jumping
from .schedules import (
    FAMILIES,
    LEAST,
    R2,
    Schedule,
    best_product,
    full,
    parsed,
    round_robins,
    single_jump,
)

if TYPE_CHECKING:
    from ..weights.model import Model

KS = (1, 5, 10)
BEAM = 4
AT_MASKS = (
    "A masked model's maps are fitted at mask tokens, but a jump maps every position: blocks that "
    "run after a jump attend over states that the maps were not fitted on."
)


@dataclass(frozen=True)
class ScheduleScore:
    """One schedule on the scoring rows.

    name: single, rr:A,B, r2, best or full; schedule: a mark a block, # runs, . is jumped over;
    product: Π r² of its jumps (calibration rows; r² below 1e-6 as 1e-6); precision: share of rows
    whose answer is among the model's own k first, with a 95 % interval for k = 1 (Wilson's, over
    texts); surprisal: nats, None where a row has no answer; calibrated: Precision@1 on the
    calibration rows, where it was chosen by measuring there.
    """

    name: str
    schedule: str
    n_run: int
    product: float
    precision: dict[int, float]
    precision_interval: Interval
    surprisal: float | None
    calibrated: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, precision by k as precision@k."""
        found = dict(vars(self))
        precision = found.pop("precision")
        ends = found.pop("precision_interval")
        found["precision_interval"] = ends and list(ends)
        return found | {f"precision@{k}": value for k, value in precision.items()}


@dataclass(frozen=True)
class Alternation(Result):
    """Schedules of blocks and jumps by Precision@1 and blocks run, the single jump among them."""

    n_layers: int
    scores: tuple[ScheduleScore, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def single(self, n_run: int) -> ScheduleScore | None:
        """The single jump after so many blocks, if it was measured."""
        mine = (s for s in self.scores if s.name == "single" and s.n_run == n_run)
        return next(mine, None)

    def to_dict(self) -> dict[str, Any]:
        """All schedules, settings, notes and provenance."""
        return {
            "n_layers": self.n_layers,
            "schedules": [score.to_dict() for score in self.scores],
            "settings": self.settings,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a schedule."""
        found = []
        for score in self.scores:
            row = score.to_dict()
            ends = row.pop("precision_interval") or (None, None)
            row["precision_low"], row["precision_high"] = ends
            found.append(row)
        return found


def alternate(
    model: "Model",
    maps: Maps | str | Path | None = None,
    text: AnyText | None = None,
    *,
    schedules: str | Sequence[str] = FAMILIES,
    budgets: Sequence[int] | None = None,
    beam: int = BEAM,
    tries: int | None = None,
    rows: int | None = None,
    kind: Kind | None = None,
    progress: Progress | None = None,
) -> Alternation:
    """Precision@1 of schedules of real blocks and jumps that end at L, against blocks run.

    A jump l → l' replaces the states of all positions of the sequence, not only the one that is
    scored, by mat_{l→l'}: the blocks after it attend over mapped states. No code of
    the paper for this is public: this is our reading of its text.
    schedules: of "single" (n blocks, then one jump to L: fixed exit), "rr" (weighted round robin,
    every a + b that divides L), "rr:A,B", "r2" (for every number of blocks run the largest product
    of r² of the jumps; dynamic programming, r² below 1e-6 counts as 1e-6) and "best" (found by
    measuring: from the whole model one block after the other is taken away, the `beam` schedules
    with the highest Precision@1 on calibration rows are kept; `tries`: at most so many schedules
    measured at each number of blocks, those with the largest product of r² first).
    budgets: numbers of blocks run that single, r2 and best are shown at (default all). Maps of all
    pairs are needed; None fits them, given ones get their r² anew on calibration rows. Calibration
    (r², beam) and scoring lines are apart, both of at most `rows` lines. kind: of maps fitted here
    ("mat"). [DIN] §6
    Raises TextError, MapsError, ModelError, EmbspaceError.
    """
    require_own_kind(maps, kind)
    n_layers = model.n_layers
    asked = [schedules] if isinstance(schedules, str) else list(schedules)
    names = dict(parsed(name, n_layers) for name in asked)
    shown = set(range(n_layers + 1)) if budgets is None else _budgets(budgets, n_layers)
    text = Text.of(text, model)
    how = {"rows": rows, "pairs": "all", "progress": progress}
    half = halves(model, text, maps, kind=kind or "mat", **how)
    require_all_pairs(half.maps)
    sides = {"calibration": half.calibration, "scoring": half.scoring}
    taken = {side: passages(model, text, chosen) for side, chosen in sides.items()}
    running = start_model(model)
    r2 = (
        r2_of_maps(half.maps)
        if maps is None
        else calibrated(running, half.maps, taken["calibration"])
    )  # the own r² of given maps may be of rows that are scored here
    work = _Alternating(Jumping(running, half.maps), taken, r2, progress)
    entries = _named(names, r2, shown, n_layers)
    if "best" in names:
        entries += work.best(shown, positive(beam, "beam"), tries)
    changes, said = batch_changes(running, taken["scoring"].passages)
    settings = {
        "schedules": list(names),
        "kind": half.maps.kind,
        "beam": beam if "best" in names else None,
        "tries": tries if "best" in names else None,
        "rows_calibration": taken["calibration"].n_rows,
        "rows_fitted": half.maps.about.get("rows"),
        **record_of(model, taken["scoring"]),
        **changes,
    }
    notes = (*half.notes, *taken["scoring"].notes(), *_few(r2), *said)
    notes = (*notes, *(() if model.family.causal else (AT_MASKS,)))
    scores = work.scores(entries, text.seed)
    notes = (*notes, *work.lost)
    return Alternation(n_layers, scores, settings, tuple(dict.fromkeys(notes)), model.provenance)


def _budgets(given: Sequence[int], n_layers: int) -> set[int]:
    return set(indices(given, n_layers + 1, "number of blocks"))


def require_all_pairs(maps: Maps) -> None:
    """Raise MapsError where some pair of layers has no map."""
    for l, to in combinations(range(maps.n_layers + 1), 2):
        if (l, to) not in maps:
            raise MapsError(f"jumps need maps of all pairs, but {l} → {to} has none: fit them all.")


def r2_of_maps(maps: Maps) -> dict[tuple[int, int], float]:
    """Held-out r² of every pair of layers, as recorded; −1 where none is."""
    return {
        (int(p.source), int(p.target)): -1.0 if p.r2 is None else p.r2
        for p in maps.pairs
        if p.source.isdecimal() and p.target.isdecimal()
    }


def calibrated(running: Running, maps: Maps, taken: Passages) -> dict[tuple[int, int], float]:
    """r² of every pair of layers on some rows; −1 where they tell none."""
    layers = [p for p in maps.pairs if p.source.isdecimal() and p.target.isdecimal()]
    of_layers = replace(maps, pairs=tuple(layers))
    sums = Sums(plan_of(of_layers), running.model.d, device=running.model.device)
    for states in capture(running, taken.passages):
        sums.add({str(l): x for l, x in states.layers.items()})
    found = {tuple(map(int, n.split("-"))): r2 for n, r2 in r2_of_pairs(of_layers, sums)[0].items()}
    return {(l, to): -1.0 if r2 is None else r2 for (l, to), r2 in found.items()}


def _few(r2: R2) -> list[str]:
    """A sentence about r² that says nothing good."""
    bad = [f"{l} → {to}" for (l, to), value in sorted(r2.items()) if value < LEAST]
    if not bad:
        return []
    some = ", ".join(bad[:5]) + (" …" if len(bad) > 5 else "")
    return [f"{len(bad)} maps have no positive r² ({some}): in products it counts as {LEAST}."]


Entry = tuple[str, Schedule, float | None]  # name, schedule, Precision@1 where it was chosen by it


def _names(entries: Sequence[Entry]) -> dict[str, Schedule]:
    """`single ##..` -> the schedule."""
    return {f"{name} {schedule}": schedule for name, schedule, _ in entries}


def _lost(measured: dict[str, Jumped]) -> list[str]:
    """A sentence about schedules in which rows are lost."""
    found = [
        f"{name}: {one.n_lost} of {len(one.rank)}" for name, one in measured.items() if one.n_lost
    ]
    if not found:
        return []
    some = ", ".join(found[:3]) + (" …" if len(found) > 3 else "")
    return [
        f"In {len(found)} of the schedules the states of some rows grow beyond all numbers of the "
        f"run ({some}): such a row counts as wrong, and Surprisal is left out."
    ]


def _named(
    names: dict[str, Schedule | None], r2: R2, shown: set[int], n_layers: int
) -> list[Entry]:
    """The schedules that need no measuring to be found."""
    found: list[Entry] = [("full", full(n_layers), None)]
    for name, given in names.items():
        if given is not None:
            found.append((name, given, None))
        elif name == "single":
            found += [(name, single_jump(n, n_layers), None) for n in sorted(shown - {n_layers})]
        elif name == "rr":
            every = round_robins(n_layers).items()
            found += [(f"rr:{a},{b}", s, None) for (a, b), s in every]
        elif name == "r2":
            best = best_product(r2, n_layers)
            found += [(name, best[n], None) for n in sorted(shown - {n_layers})]
    return found


class _Alternating:
    """Schedules measured on calibration and on scoring rows."""

    def __init__(
        self,
        work: Jumping,
        taken: dict[str, Passages],
        r2: R2,
        progress: Progress | None,
    ) -> None:
        self.work, self.taken, self.r2 = work, taken, r2
        self.progress = progress
        self.lost: list[str] = []  # a sentence about rows without numbers

    def _measure(self, schedules: Sequence[Schedule], side: str) -> list[Jumped]:
        return self.work.measure(
            schedules,
            self.taken[side],
            what="search" if side == "calibration" else "score",
            progress=self.progress,
        )

    def best(self, shown: set[int], beam: int, tries: int | None) -> list[Entry]:
        """What the beam search finds on the calibration rows."""
        if tries is not None:
            positive(tries, "tries")

        def measure(schedules: Sequence[Schedule]) -> list[tuple[float, float]]:
            return [found.worth for found in self._measure(schedules, "calibration")]

        n_layers = self.work.n_layers
        found = beam_search(
            measure, self.r2, n_layers, beam=beam, least=min(shown, default=0), tries=tries
        )
        wanted = sorted(shown - {n_layers})
        return [("best", found[n][0], found[n][1][0]) for n in wanted]

    def scores(self, entries: Sequence[Entry], seed: int) -> tuple[ScheduleScore, ...]:
        """Every schedule on the scoring rows; one that has several names runs once."""
        different = list(dict.fromkeys(schedule for _, schedule, _ in entries))
        measured = dict(zip(different, self._measure(different, "scoring"), strict=True))
        draws = Bootstrap(next(iter(measured.values())).lines, seed=seed)
        self.lost = _lost({name: measured[s] for name, s in _names(entries).items()})
        return tuple(self._score(*entry, measured[entry[1]], draws) for entry in entries)

    def _score(
        self,
        name: str,
        schedule: Schedule,
        calibrated: float | None,
        found: Jumped,
        draws: Bootstrap,
    ) -> ScheduleScore:
        return ScheduleScore(
            name,
            str(schedule),
            schedule.n_run,
            schedule.product(self.r2),
            {k: float((found.rank < k).double().mean()) for k in KS},
            draws.share((found.rank == 0).double()),
            None if found.n_lost else float(found.surprisal.mean()),
            calibrated,
        )
