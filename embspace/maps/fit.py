"""Fit maps: run a model over a text, sum the moments of its states, solve. [DIN] §3"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..cache import alone
from ..checking import one_of, positive
from ..errors import EmbspaceError, MapsError, ResourceError, TextError
from ..interrupts import held
from ..live.capture import States, capture
from ..live.recorder import PARTS, has_part
from ..live.running import Running, start_model
from ..memory import free_memory, gigabytes
from ..progress import Progress
from ..text.passages import Passages, passages
from ..text.splits import Split, split
from ..text.text import AnyText, Text
from ..weights.settings import settings_of
from .assemble import assemble, outlying
from .checkpointing import load_state, save_state
from .distributed import ALONE, Group
from .maps import Maps
from .solve import KINDS, Kind, r2_of, solve
from .sums import Plan, Products, Sums, needs_room

if TYPE_CHECKING:
    from ..weights.model import Model

SAVE_EVERY_S = 120.0
WORTH_SAVING_S = 10.0  # of reading that was not saved yet, before maps are solved
CONVERGED = 0.002  # gain of mean r² over the last half of the rows below which more data is idle
CHECKS_FROM, CHECKS_BY = 500, 2**0.5


def fit(
    model: "Model",
    text: AnyText | None = None,
    *,
    pairs: str | Iterable[tuple[int, int]] = "final",
    parts: Literal["blocks", "submodules", "both"] = "blocks",
    kind: Kind = "mat",
    ridge: float | None = None,
    rows: int | None = None,
    products: Products = "float64",
    until_converged: bool = False,
    state: str | Path | None = None,
    resume: bool = False,
    keep: Literal["all", "final"] = "all",
    group: Group = ALONE,
    progress: Progress | None = None,
    on_check: "Callable[[Check], None] | None" = None,
) -> Maps:
    """Fit linear maps between the states of a model and say how good they are on held-out text.

    text: see `Text` (default: our sentences for a sample, Wikipedia from the Hub else); it says
    which lines are fitted and which are scored, a quarter where it does not;
    pairs: "final" (every l to L), "all", or (l, l') pairs; parts "submodules": attention,
    feed-forward and norms of every block instead, input to output ("both": in one pass); kind:
    "mat" (least squares without intercept, the paper's), "affine", "ridge" (`ridge` is the
    penalty in units of the mean, over coordinates, of Σ x²; or it is chosen, layer by layer, on a
    quarter of the rows to fit that is kept apart for it). rows: fit so many lines at most, and
    score the same share beside them. products: see `Sums`. until_converged: stop when more rows no
    longer raise held-out r². state: file that a fit writes as it goes and `resume` goes on from,
    to the same result. keep "final": score all pairs, keep the matrices of those to the last state
    only. How the model is run was said when it was loaded (`RunSettings`).
    Raises TextError, MapsError, ModelError, ResourceError, StateError.
    """
    one_of(kind, KINDS, "kind of map")
    one_of(products, ("float64", "float32"), "products")
    if kind == "ridge" and ridge is not None and not 0 <= ridge < float("inf"):
        raise EmbspaceError(f"ridge must be a number from 0 on, got {ridge}.")
    text = Text.of(text, model)
    lines = split(text)
    if rows is not None:
        lines = lines.first(positive(rows, "rows"), drawn=not text.names_lines)
    plan = plan_of(model, pairs, parts)
    work = Fitting(model, text, lines, plan, kind, products, group, state)
    work.require_memory()
    with alone(Path(state)) if state and group.first else nullcontext():
        if resume:
            work.resume()
        work.run(start_model(model), progress, until_converged, on_check)
    return assemble(work, ridge, keep, progress)


def plan_of(model: "Model", pairs: Any, parts: str) -> Plan:
    """The maps wanted. Raises EmbspaceError for pairs that do not exist."""
    if one_of(parts, ("blocks", "submodules", "both"), "parts") == "blocks":
        return Plan.of_layers(model.n_layers, pairs)
    targets = {
        f"{l}.{part}.in": (f"{l}.{part}.out",)
        for l in range(model.n_layers)
        for part in PARTS
        if has_part(model, l, part)
    }
    spaces = tuple(space for source, row in targets.items() for space in (source, *row))
    if parts == "submodules":
        return Plan(spaces, targets)
    layers = Plan.of_layers(model.n_layers, pairs)
    return Plan((*layers.spaces, *spaces), layers.targets | targets)


@dataclass(frozen=True)
class Check:
    """Held-out r² of the maps to the last state, averaged over a few layers, after so many rows."""

    rows: int
    r2: float


class Fitting:
    """One fit on its way: what is to be read, and the sums so far."""

    def __init__(
        self,
        model: "Model",
        text: Text,
        lines: Split,
        plan: Plan,
        kind: Kind,
        products: Products,
        group: Group = ALONE,
        state: str | Path | None = None,
    ) -> None:
        self.model, self.text, self.lines = model, text, lines
        self.plan, self.group = plan, group
        self.kind: Kind = kind
        self.products: Products = products
        self.state = None if state is None else _of_rank(Path(state), group)
        self.sets = self._passages()
        self.sums: dict[str, Sums] = {}
        self.done = dict.fromkeys(self.sets, 0)
        self.checks: list[Check] = []
        self._saved = time.monotonic()

    def _passages(self) -> dict[str, Passages]:
        """Passes to run: held-out ones first, so that progress can be judged as it comes."""
        fitted, chosen = self.lines.fit, ()
        if self.kind == "ridge":  # its strength is chosen on lines of their own
            fitted, chosen = _apart(self.lines.fit)
        sets = {"score": self.lines.score, "choice": chosen, "fit": fitted}
        found: dict[str, Passages] = {}
        for name, lines in sets.items():
            if lines:
                every = passages(self.model, self.text, lines)
                # in the order of the split, which was drawn: the first rows are like the last ones
                found[name] = replace(every, passages=_in_order(every, lines))
        if "fit" not in found:
            raise TextError("no line is left to fit.")
        return found

    def require_memory(self) -> None:
        """Raise ResourceError, naming the way out, where the sums would not fit."""
        needed = needs_room(self.plan, self.model.d, sets=len(self.sets))
        free = free_memory(self.model.device)
        if needed > free:
            raise ResourceError(
                f"the sums of {len(self.plan.pairs)} maps need {gigabytes(needed)} of memory and "
                f"{gigabytes(free)} are free: fit fewer (pairs=final)."
            )

    @cached_property
    def identity(self) -> str:
        """A hash of all that decides the sums: a saved state is of this fit or of another."""
        how = self.model.run_settings
        said = {
            "weights": self.model.checkpoint.fingerprint,
            "config": settings_of(self.model.config),
            "text": self.text.digest,
            "dtypes": [str(self.model.dtype), how.dtype, self.products],
            "batch_tokens": how.batch_tokens,  # what was read is counted in batches
            "plan": self.plan.targets,
            "group": asdict(self.group),
        }
        found = hashlib.sha256(json.dumps(said).encode())
        for name, each in self.sets.items():
            found.update(name.encode())
            for p in each.passages:
                found.update(repr((p.line, p.ids, p.keep)).encode())
        return found.hexdigest()[:16]

    def resume(self) -> None:
        """Go on from the saved state. Raises MapsError where there is none, or of another fit."""
        if self.state is None or not self.state.is_file():
            raise MapsError(f"there is no state to go on from at {self.state}.")
        self.sums = {name: self._new_sums() for name in self.sets}
        done, checks = load_state(self.state, self.sums, self.identity)
        self.done |= done
        self.checks = [Check(rows, r2) for rows, r2 in checks]

    def _new_sums(self) -> Sums:
        return Sums(self.plan, self.model.d, products=self.products, device=self.model.device)

    # run ---------------------------------------------------------------------------------
    def run(
        self,
        running: Running,
        progress: Progress | None,
        until_converged: bool,
        on_check: Callable[[Check], None] | None,
    ) -> None:
        """Sum over everything that was not read yet; an interrupt saves what was read."""
        if until_converged and self.group.size > 1:
            raise EmbspaceError("until_converged judges the rows of one process; run one.")
        if not self.sums:
            self.sums = {name: self._new_sums() for name in self.sets}
        self._saved = time.monotonic()
        try:
            self._read(running, progress, until_converged, on_check)
            if time.monotonic() - self._saved > WORTH_SAVING_S:  # solving can be interrupted, too
                self._save()
        except KeyboardInterrupt:
            if any(self.done[name] for name in self.sets):
                self._save()
            raise
        for each in self.sums.values():
            self.group.add_up(each)
        self.done["outlying"] = self.group.total(self.done.get("outlying", 0))

    def _read(
        self,
        running: Running,
        progress: Progress | None,
        until_converged: bool,
        on_check: Callable[[Check], None] | None,
    ) -> None:
        n_all = sum(each.n_tokens for each in self.sets.values()) // self.group.size
        for name, each in self.sets.items():
            if until_converged and self._idle():  # so judged before what goes on here stopped
                break
            for states in self._captured(running, each, self.done[name]):
                with held():  # sums and the count of what is in them belong together
                    self._add(name, states)
                    if name == "fit":  # before the state is saved: what goes on judges no later
                        self._judge(on_check)
                if progress:
                    progress(name, self.done["tokens"], n_all)
                if self.state and time.monotonic() - self._saved > SAVE_EVERY_S:
                    self._save()
                if until_converged and self._idle():
                    break

    def _add(self, name: str, states: States) -> None:
        self.sums[name].add(self._rows(states))
        self.done[name] += 1
        self.done["tokens"] = self.done.get("tokens", 0) + states.n_tokens

    def _save(self) -> None:
        """Write the state, where there is a file for it."""
        if self.state:
            checks = [(check.rows, check.r2) for check in self.checks]
            save_state(self.state, self.sums, self.done, self.identity, checks)
        self._saved = time.monotonic()

    def _captured(self, running: Running, each: Passages, n_done: int):
        """Batches of states, those aside that were read before a resumption."""
        layers = [int(space) for space in self.plan.spaces if "." not in space]
        return capture(
            running,
            each.passages,
            layers=layers,
            parts=PARTS if len(layers) < len(self.plan.spaces) else (),
            batch_tokens=self.model.run_settings.batch_tokens,
            skip_batches=n_done,
            share=(self.group.rank, self.group.size),
            dtype=torch.float64 if self.model.dtype == torch.float64 else torch.float32,
        )

    def _rows(self, states: States) -> dict[str, Tensor]:
        self.done["outlying"] = self.done.get("outlying", 0) + outlying(states)
        found: dict[str, Tensor] = {str(l): x for l, x in states.layers.items()}
        for (layer, part), (x, y) in states.parts.items():
            found |= {f"{layer}.{part}.in": x, f"{layer}.{part}.out": y}
        return found

    def _judge(self, on_check: Callable[[Check], None] | None) -> None:
        """Judge the maps each time the rows have grown enough."""
        if self.group.size > 1:  # no process has seen all rows
            return
        sums = self.sums["fit"]
        least = self.checks[-1].rows * CHECKS_BY if self.checks else max(CHECKS_FROM, self.model.d)
        final = str(self.model.n_layers)
        if "score" not in self.sums or final not in self.plan.spaces or sums.n < least:
            return
        sources = [s for s, row in self.plan.targets.items() if final in row]
        r2 = [self._r2_now(s, final) for s in sources[:: max(1, len(sources) // 4)][:5]]
        self.checks.append(Check(sums.n, sum(r2) / len(r2)))
        if on_check:
            on_check(self.checks[-1])

    def _idle(self) -> bool:
        """Whether the last rows no longer raised held-out r², as judged so far."""
        before = [c for c in self.checks[:-1] if c.rows * 2 <= self.checks[-1].rows * 1.001]
        return bool(before) and self.checks[-1].r2 - before[-1].r2 < CONVERGED

    def _r2_now(self, source: str, target: str) -> float:
        kind: Kind = "mat" if self.kind == "ridge" else self.kind
        solution = solve(self.sums["fit"], source, (target,), kind=kind)
        return r2_of(self.sums["score"], source, solution)[target].mean


def _apart(lines: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Three quarters of some lines, and every fourth."""
    return tuple(n for k, n in enumerate(lines) if k % 4), lines[::4]


def _in_order(every: Passages, lines: tuple[int, ...]) -> tuple[Any, ...]:
    by_line: dict[int, list[Any]] = {}
    for one in every.passages:
        by_line.setdefault(one.line, []).append(one)
    return tuple(one for line in lines for one in by_line.get(line, ()))


def _of_rank(path: Path, group: Group) -> Path:
    return path if group.size == 1 else path.with_name(f"{path.name}.{group.rank}")
