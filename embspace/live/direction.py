"""A live model run as it is: what its blocks hand on, and which way they look."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..weights.family import Family
from .findings import DIRECTION, RECORDED, Findings, relative_error
from .hooks import errors_of, without_cache
from .recorder import Recorder
from .running import Running

STILL = 2e-5  # of the largest value: states that move by less do so by rounding


def block_outputs(running: Running, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B T d"]]:
    """What each block hands on, in the order they run. Raises ModelError where the model fails."""
    layers = range(1, running.n_layers + 1)
    with Recorder(running, layers, torch.clone) as recorder, torch.no_grad(), errors_of(running):
        running.module(input_ids=ids, **without_cache(running))
    return list(recorder.states.values())


def check_direction(
    running: Running, ids: Tensor, recorded: Sequence[Tensor], findings: Findings
) -> None:
    """The recorder changes nothing that it records; text flows the way the reading says."""
    plain = block_outputs(running, ids)
    endless = [layer for layer, state in enumerate(plain) if not bool(state.isfinite().all())]
    if endless:
        return findings.fail(DIRECTION, None, f"block {endless[0]} hands on NaN or infinity")
    for layer, (ours, true) in enumerate(zip(recorded, plain, strict=True)):
        findings.compare(RECORDED, layer, ours, true)
    other = _last_changed(ids)
    if other is None or ids.shape[1] < 2:
        return findings.skip(DIRECTION, "the texts leave no token to change")
    changed = block_outputs(running, other)
    pairs = zip(changed, plain, strict=True)
    moved = [relative_error(new[:, :-1] - old[:, :-1], old) for new, old in pairs]
    _direction(running.model.family, moved, findings)


def _direction(family: Family, moved: Sequence[float], findings: Findings) -> None:
    most, one_way = max(moved), family.causal and not family.both_ways
    layer = moved.index(most)
    if one_way and not most <= STILL:
        reason = (
            f"read as a causal decoder, but earlier states move by {most:.2g} of the largest "
            "value when the last token changes"
        )
        return findings.fail(DIRECTION, layer, reason, most)
    if not one_way and most <= STILL:
        reason = "read as bidirectional, but no earlier state moves when the last token changes"
        return findings.fail(DIRECTION, layer, reason)
    findings.note(DIRECTION, layer, most if one_way else 0.0)


def _last_changed(ids: Tensor) -> Tensor | None:
    """The same texts with another last token each; None where there is one token only."""
    found = ids.unique()
    if len(found) < 2:
        return None
    other = ids.clone()
    other[:, -1] = torch.where(ids[:, -1] == found[0], found[1], found[0])
    return other
