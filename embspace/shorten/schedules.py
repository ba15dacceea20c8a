"""Schedules: which blocks run, and which are jumped over by a map. [DIN] §6

Neighbouring skipped blocks are one jump, so a schedule is the set of the blocks that run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import EmbspaceError

LEAST = (
    1e-6  # what a jump whose r² is not positive counts as: taken only where nothing else leads on
)
R2 = Mapping[tuple[int, int], float]  # (l, l') -> r² of the map


@dataclass(frozen=True)
class Schedule:
    """The blocks that run, of L; a maximal run of others is one jump, by the map between its ends.

    `str(schedule)` is a mark a block: # runs, . is jumped over.
    """

    blocks: frozenset[int]
    n_layers: int

    @property
    def n_run(self) -> int:
        """How many blocks run."""
        return len(self.blocks)

    @property
    def jumps(self) -> tuple[tuple[int, int], ...]:
        """(l, l') of every jump from state l to state l', in order."""
        found: list[tuple[int, int]] = []
        for l in range(self.n_layers):
            if l in self.blocks:
                continue
            if found and found[-1][1] == l:
                found[-1] = (found[-1][0], l + 1)
            else:
                found.append((l, l + 1))
        return tuple(found)

    def product(self, r2: R2) -> float:
        """Π max(r², 1e-6) over the jumps; 1 without any."""
        return math.exp(sum(math.log(max(r2[jump], LEAST)) for jump in self.jumps))

    def __str__(self) -> str:
        return "".join("#" if l in self.blocks else "." for l in range(self.n_layers))


def full(n_layers: int) -> Schedule:
    """Every block: the model itself."""
    return Schedule(frozenset(range(n_layers)), n_layers)


def single_jump(n_run: int, n_layers: int) -> Schedule:
    """The first blocks, then one jump to L: fixed exit."""
    return Schedule(frozenset(range(n_run)), n_layers)


def round_robin(a: int, b: int, n_layers: int) -> Schedule:
    """a blocks run, b are jumped over, and again; raises EmbspaceError unless a + b divides L."""
    if a < 1 or b < 1 or n_layers % (a + b):
        fitting = [str(p) for p in range(2, n_layers + 1) if n_layers % p == 0]
        raise EmbspaceError(
            f"round robin {a},{b} does not fit {n_layers} blocks: a and b are at least 1, and "
            f"a + b is one of {', '.join(fitting) or 'none'}."
        )
    return Schedule(frozenset(l for l in range(n_layers) if l % (a + b) < a), n_layers)


def round_robins(n_layers: int) -> dict[tuple[int, int], Schedule]:
    """All (a, b) with a + b dividing L."""
    periods = [p for p in range(2, n_layers + 1) if n_layers % p == 0]
    pairs = [(a, p - a) for p in periods for a in range(1, p)]
    return {(a, b): round_robin(a, b, n_layers) for a, b in pairs}


def best_product(r2: R2, n_layers: int) -> dict[int, Schedule]:
    """For every number of blocks run, the schedule with the largest product of r² of its jumps.

    Dynamic programming over (state, blocks run, whether the last step was a jump): a jump after a
    jump would be the one jump over both. r² below 1e-6 counts as 1e-6. Ties: fewer jumps, then
    the blocks that run earliest.
    """
    best: dict[tuple[int, int, bool], tuple[tuple[float, int, tuple[int, ...]], frozenset[int]]] = {
        (0, 0, False): ((0.0, 0, ()), frozenset())
    }

    def offer(state: tuple[int, int, bool], cost: float, n_jumps: int, run: frozenset[int]) -> None:
        key = (round(cost, 12), n_jumps, tuple(sorted(run)))
        if state not in best or key < best[state][0]:
            best[state] = (key, run)

    for l in range(n_layers):
        for n in range(l + 1):
            for jumped in (False, True):
                if (l, n, jumped) not in best:
                    continue
                (cost, n_jumps, _), run = best[l, n, jumped]
                offer((l + 1, n + 1, False), cost, n_jumps, run | {l})
                for to in () if jumped else range(l + 1, n_layers + 1):
                    step = -math.log(max(r2[l, to], LEAST))
                    offer((to, n, True), cost + step, n_jumps + 1, run)
    ends: dict[int, Schedule] = {}
    for n in range(n_layers + 1):
        found = [best[n_layers, n, j] for j in (False, True) if (n_layers, n, j) in best]
        ends[n] = Schedule(min(found, key=lambda each: each[0])[1], n_layers)
    return ends


def parsed(text: str, n_layers: int) -> tuple[str, Schedule | None]:
    """(name, schedule) of `rr:A,B`; (name, None) of single, rr, r2 and best, which are families.

    Raises EmbspaceError for anything else.
    """
    name, _, rest = text.strip().partition(":")
    if name in FAMILIES and not rest:
        return name, None
    numbers = rest.split(",")
    if name == "rr" and len(numbers) == 2 and all(n.strip().isdecimal() for n in numbers):
        a, b = (int(n) for n in numbers)
        return f"rr:{a},{b}", round_robin(a, b, n_layers)
    raise EmbspaceError(
        f"unknown schedule {text[:40]!r}: use {', '.join(FAMILIES)}, or rr:A,B (A blocks run, B "
        "jumped over)."
    )


FAMILIES = ("single", "rr", "r2", "best")
