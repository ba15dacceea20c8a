"""Schedules that share what they have in common, beside a pass of the model for each of them.

    python tests/bench/alternate.py [MODEL] [ROWS] [TEXT]

Both sides run the same schedules (single jump, all round robins, r²) with the same maps on the
same rows, and must give the same ranks. Fitting is outside the clock.
"""

import sys
import time

import torch

import embspace
from embspace.live.capture import batches, capture_all
from embspace.live.replace import Replaced
from embspace.live.running import run
from embspace.maps.decoding import Head, rank_of
from embspace.maps.remembered import fitted
from embspace.shorten.alternation import r2_of_maps
from embspace.shorten.jumps import Jumping
from embspace.shorten.schedules import Schedule, best_product, round_robins, single_jump
from embspace.text.passages import passages
from embspace.text.text import Text

FITTED = 600  # rows: how good the maps are does not matter here


def each_alone(running, maps, schedules, taken) -> dict[Schedule, torch.Tensor]:
    """A whole pass for every schedule and batch, as the papers' code makes it."""
    head, L = Head(running.model), running.n_layers
    ranks: dict[Schedule, list[torch.Tensor]] = {schedule: [] for schedule in schedules}
    with torch.no_grad(), Replaced(running) as blocks:
        for batch in batches(taken.passages):
            blocks.step = None
            own = head(capture_all(running, batch, layers=[L]).layers[L])
            for schedule in schedules:
                jumps = dict(schedule.jumps)

                def step(l, x, block, jumps=jumps, schedule=schedule):
                    if l in jumps:
                        return maps.apply(x, l, jumps[l])
                    return block(x) if l in schedule.blocks else x

                blocks.step = step
                x = capture_all(running, batch, layers=[L]).layers[L]
                ranks[schedule].append(rank_of(head(x).argmax(-1), own))
    return {schedule: torch.cat(found) for schedule, found in ranks.items()}


def main(name: str, rows: int, text: str | None) -> None:
    """Print both times and their ratio."""
    model = embspace.load(name)
    corpus = Text.of(None, model) if text is None else Text.read(text)
    held_out = range(FITTED, FITTED + max(rows, 50))
    maps, _ = fitted(model, Text.read(corpus, fit=range(FITTED), held_out=held_out), pairs="all")
    L = model.n_layers
    best = best_product(r2_of_maps(maps), L)
    every = [*(single_jump(n, L) for n in range(L)), *round_robins(L).values(), *best.values()]
    schedules = list(dict.fromkeys(every))
    taken = passages(model, corpus, lines=list(held_out)[:rows])
    running = run(model, attention="fast")
    start = time.perf_counter()
    ours = Jumping(running, maps).measure(schedules, taken)
    middle = time.perf_counter()
    alone = each_alone(running, maps, schedules, taken)
    end = time.perf_counter()
    same = all(
        found is None or torch.equal(found.rank, alone[schedule])
        for schedule, found in zip(schedules, ours, strict=True)
    )
    print(f"{name}: {len(schedules)} schedules of {L} blocks, {taken.n_rows} rows, same: {same}")
    print(f"each alone: {end - middle:.1f} s, ours {middle - start:.1f} s")
    print(f"ratio: {(end - middle) / (middle - start):.2f}")


if __name__ == "__main__":
    arguments = [*sys.argv[1:], *["sample-gpt2", "200", None][len(sys.argv) - 1 :]]
    main(arguments[0], int(arguments[1]), arguments[2])
