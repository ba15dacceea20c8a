"""Whether a live model that is there already is the one of a checkpoint: settings and weights."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..errors import ModelError
from ..messages import first_line
from ..weights.settings import difference, settings_of
from .running import Running, is_beside


def require_same(running: Running) -> None:
    """Compare a live model's settings, then every parameter, with those of its checkpoint.

    Stored numbers are rounded to the live model's dtype first, as loading rounds them. One block
    is compared at a time. Parts that no text passes through are left out, and a prediction head
    that the checkpoint does not hold.

    Raises:
        ModelError: Names the first setting or tensor that differs, or is on one side only.
    """
    model = running.model
    changed = difference(settings_of(model.config), running.text_config)
    if changed:
        raise _other(running, f"its config has {changed}")
    seen: set[str] = set()
    for group in _groups(running):
        seen |= _compared(running, group)
    blocks = tuple(model.layout.block(l) for l in range(running.n_layers))
    for name in sorted(set(model.checkpoint.names) - seen):
        if name.startswith(blocks) and model.checkpoint.is_weight(name):
            raise _other(running, f"it has no {name}, which the checkpoint holds")


def _groups(running: Running) -> Iterator[dict[str, nn.Parameter]]:
    """Parameters by their names: those outside the blocks, then those of each block."""
    inside = {running.block_path(l) + ".": {} for l in range(running.n_layers)}
    outside: dict[str, nn.Parameter] = {}
    for name, value in running.module.named_parameters(remove_duplicate=False):
        block = next((b for b in inside if name.startswith(b)), None)
        (outside if block is None else inside[block])[name] = value
    yield outside
    yield from inside.values()


def _compared(running: Running, group: dict[str, nn.Parameter]) -> set[str]:
    """The checkpoint's names of the tensors that parameters were found equal to."""
    seen = set()
    for name, value in _as_saved(running, group).items():
        stored = _stored_name(running, name)
        if stored is not None:
            _require_equal(running, stored, value)
            seen.add(stored)
        elif name.startswith(running.prefix) and not is_beside(name):
            raise _other(running, f"it holds {name}, which the checkpoint does not")
    return seen


def _as_saved(running: Running, group: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Parameters named and shaped as transformers would save them (experts one by one, …)."""
    from transformers.core_model_loading import revert_weight_conversion

    given = {name: value.detach() for name, value in group.items()}
    try:
        return revert_weight_conversion(running.module, given)
    except Exception as error:
        raise ModelError(
            f"the live model cannot be compared with {running.model.name}: {first_line(error)}."
        ) from error


def _stored_name(running: Running, name: str) -> str | None:
    """The name of a parameter in the checkpoint, whose base model may have another prefix."""
    own = running.model.layout.prefix + name.removeprefix(running.prefix)
    return next((n for n in (name, own) if n in running.model.checkpoint), None)


def _require_equal(running: Running, name: str, value: Tensor) -> None:
    stored = running.model.checkpoint.tensor(name)
    if stored.shape != value.shape:
        sizes = f"{tuple(value.shape)} instead of {tuple(stored.shape)}"
        raise _other(running, f"its {name} is {sizes}")
    if not torch.equal(stored.to(value.device, value.dtype), value):
        raise _other(running, f"its {name} holds other numbers than the checkpoint's")


def _other(running: Running, why: str) -> ModelError:
    return ModelError(
        f"the live model is not {running.model.name}: {why}. Save it to a folder and load that."
    )
