"""The best schedules found by measuring: blocks taken away one by one, a few kept at each step."""

from collections.abc import Callable, Sequence

from .schedules import R2, Schedule, full

Measure = Callable[[Sequence[Schedule]], Sequence[tuple[float, float]]]  # the larger the better


def beam_search(
    measure: Measure,
    r2: R2,
    n_layers: int,
    *,
    beam: int,
    least: int = 0,
    tries: int | None = None,
) -> dict[int, tuple[Schedule, tuple[float, float]]]:
    """For every number of blocks from `least` to L the best schedule found, and its worth.

    From the whole model down: every schedule of the beam without one more of its blocks is
    measured (at most `tries` of them, those with the largest product of r² of their jumps), and the
    `beam` best go on. With a beam wide enough for all subsets of each size it is exhaustive.
    """
    kept = [full(n_layers)]
    found: dict[int, tuple[Schedule, tuple[float, float]]] = {n_layers: (kept[0], measure(kept)[0])}
    for n in range(n_layers - 1, least - 1, -1):
        nexts = {
            Schedule(schedule.blocks - {block}, n_layers)
            for schedule in kept
            for block in schedule.blocks
        }
        ranked = sorted(nexts, key=lambda s: (-s.product(r2), str(s)))[:tries]
        worths = dict(zip(ranked, measure(ranked), strict=True))
        kept = sorted(worths, key=lambda s: (*(-w for w in worths[s]), str(s)))[:beam]
        found[n] = (kept[0], worths[kept[0]])
    return found
