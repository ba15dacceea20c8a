"""A live model that is there already: compared with the checkpoint that it was loaded from."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError
from ..messages import first_line
from ..weights.model import Model
from ..weights.settings import difference, settings_of
from .running import Running, is_beside, located


def attach(model: Model, module: Any) -> Running:
    """A live transformers model that is there already, seen with the names of its checkpoint.

    It is run in eval mode, and gets its own mode back after every run. Reads all weights once, to
    compare them; what is changed afterwards is not noticed.

    Args:
        model: The checkpoint that the live model was loaded from.
        module: A transformers model, in any dtype and on any device.

    Returns:
        The live model, for `lens(…, running=…)` and `capture`.

    Raises:
        ModelError: Its parts lie elsewhere or hold no values (meta tensors), or a setting or a
            tensor is not the checkpoint's: the first that differs is named.
    """
    require_values(module)
    model.require_proof()
    running = located(model, module, model.n_layers)
    for layer in range(model.n_layers):
        running.block(layer)  # raises where there is none
    _require_same(running)
    return running


def require_values(module: nn.Module) -> None:
    """Raise ModelError for a live model whose weights hold no values."""
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ModelError("the live model's weights are not loaded: some are meta tensors.")


def _require_same(running: Running) -> None:
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
