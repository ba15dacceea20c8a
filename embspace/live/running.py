"""The live transformers model of a checkpoint, and where our parts lie in it."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import CannotRunError, ModelError, ResourceError
from ..messages import first_line, quiet
from ..weights.layout import text_part
from ..weights.model import Model
from ..weights.scales import score_cap

TRAINED = (".gamma", ".beta")  # older ends of names of a norm's weight and bias
ADAPTER_MARKS = ("lora_", "ia3_", "hada_w", "lokr_w", "oft_", "vera_lambda", "adapter")
# parts of a live model that no text's states pass through
BESIDE = ("pooler", "vision", "visual", "audio", "multi_modal_projector", "image_newline")


@dataclass(frozen=True)
class Running:
    """A live model in eval mode with eager attention; `prefix` is the base's path inside it."""

    module: Any
    prefix: str
    n_layers: int
    model: Model

    @property
    def text_config(self) -> Any:
        """The config that the text blocks read."""
        return text_part(self.module.config)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the blocks compute: that of their parameters."""
        return next(p.dtype for p in self.block(0).parameters() if p.is_floating_point())

    @property
    def adds_alibi_twice(self) -> bool:
        """Whether its plain code adds the position bias that the mask holds already (Falcon)."""
        return is_alibi_falcon(self.model)

    @cached_property
    def base(self) -> Any:
        """The live model without its prediction head."""
        return self._modules[self.prefix.removesuffix(".")] if self.prefix else self.module

    def block(self, layer: int) -> nn.Module:
        """The module of a block. Raises ModelError where the live model has none of that path."""
        path = self.block_path(layer)
        if path not in self._modules:
            raise ModelError(f"the live {type(self.module).__name__} has no module {path}.")
        return self._modules[path]

    def part(self, layer: int, names: str | None) -> nn.Module | None:
        """The first of a block's spellings (`a|b`) that the live model has, or None."""
        return self._first(self.block_path(layer) + ".", names)

    def base_part(self, names: str | None) -> nn.Module | None:
        """The same below the base model."""
        return self._first(self.prefix, names)

    def block_path(self, layer: int) -> str:
        """Path of a block inside the live model."""
        layout = self.model.layout
        return self.prefix + layout.block(layer).removeprefix(layout.prefix).removesuffix(".")

    def _first(self, prefix: str, names: str | None) -> nn.Module | None:
        for name in (names or "").split("|"):
            if name and prefix + name in self._modules:
                return self._modules[prefix + name]
        return None

    @cached_property
    def _modules(self) -> dict[str, nn.Module]:
        # duplicates too: a module shared by layers would otherwise have one of its names only
        return dict(self.module.named_modules(remove_duplicate=False))


def run(
    model: Model,
    *,
    n_layers: int | None = None,
    dtype: torch.dtype | None = None,
    attention: str = "eager",
    device_map: str | None = None,
) -> Running:
    """Load the live model of a checkpoint, or only its first blocks, from its local folder.

    attention: transformers' implementation, "eager" or "fast" (its own choice, where that computes
    the same); device_map: "auto" spreads the blocks over devices (needs accelerate).
    Reads only the tensors it needs, runs no code of the folder, opens no connection. All blocks are
    loaded where the first are no part of the whole: a table for all of them, a bias of the last.
    Raises CannotRunError where transformers has no class for it, ResourceError where it would not
    fit, ModelError where the weights contradict the config.
    """
    model.require_proof()
    if device_map and find_spec("accelerate") is None:
        raise CannotRunError(
            f"device_map={device_map!r} needs accelerate: pip install 'embspace[devices]'."
        )
    n_layers = model.n_layers if n_layers is None else min(n_layers, model.n_layers)
    dtype = dtype or model.dtype
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": _attention(model, attention)}
    if device_map:
        options["device_map"] = device_map
    while True:
        _check_memory(model, n_layers, dtype)
        config = _full_config(model)
        text_part(config).chunk_size_feed_forward = 0  # the same numbers, in one call of a part
        if n_layers < model.n_layers:
            config = truncated(config, n_layers)
        module, found = _load(model, _auto_class(model, config), model.folder, config, **options)
        # what the last block alone has, or a table with a part for every block: no fewer will do
        if n_layers == model.n_layers or not (found["mismatched_keys"] or found["missing_keys"]):
            break
        n_layers = model.n_layers
    _refuse_contradictions(model, found)
    _refuse_unused(model, found, n_layers)
    if device_map is None:
        module = module.to(model.device)
    return located(model, module.eval(), n_layers)


def _attention(model: Model, chosen: str) -> str | None:
    """transformers' name of an implementation of attention that computes what the model does."""
    if is_alibi_falcon(model):
        return "sdpa"  # its plain code adds the ALiBi bias twice
    # the fast kernels leave out a soft cap on attention scores
    return None if chosen == "fast" and score_cap(model) is None else "eager"


def start_model(model: Model) -> Running:
    """The whole live model, run as its run settings say, with attention as fast as may be."""
    how = model.run_settings
    return run(model, dtype=how.torch_dtype, attention="fast", device_map=how.device_map)


def located(model: Model, module: Any, n_layers: int) -> Running:
    """A live model, with the path of its base found by its embedding."""
    embedding = module.get_input_embeddings()
    paths = [name for name, m in module.named_modules() if m is embedding]
    own = [name for name in paths if name.endswith(model.family.embedding)]
    if not own:
        raise ModelError(
            f"the live {type(module).__name__} keeps its embedding at {', '.join(paths)}, "
            f"not at …{model.family.embedding}."
        )
    prefix = own[0].removesuffix(model.family.embedding)
    return Running(module, prefix, n_layers, model)


def is_alibi_falcon(model: Model) -> bool:
    """Whether transformers' plain attention, but not its fast one, adds ALiBi twice."""
    return model.config.model_type == "falcon" and model.family.positions == "alibi"


def truncated(config: Any, n_layers: int) -> Any:
    """A copy of a config with only the first blocks, lists of one entry a block cut as well."""
    config = copy.deepcopy(config)
    text = text_part(config)
    n_all = text.num_hidden_layers
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == n_all:
            setattr(text, name, value[:n_layers])
    text.num_hidden_layers = n_layers
    vision: Any = getattr(config, "vision_config", None)
    if hasattr(vision, "num_hidden_layers"):
        vision.num_hidden_layers = 1  # not run, so not worth loading
    return config


def _full_config(model: Model) -> Any:
    """The config of the whole checkpoint (text and vision), by which transformers loads it."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            model.folder, local_files_only=True, trust_remote_code=model.trust_remote_code
        )
    except Exception as error:  # it was read before: what is missing is leave to run its code
        raise CannotRunError(
            f"{model.folder} is not known to transformers without its own code, which may not run: "
            f"{first_line(error)}."
        ) from error


HEADED = {  # transformers' mappings of classes with a prediction head, the first that has one
    True: ("AutoModelForCausalLM", "AutoModelForMultimodalLM", "AutoModelForImageTextToText"),
    False: ("AutoModelForMaskedLM",),
}


def fills_masks(model: Model) -> bool:
    """Whether transformers has a class that fills masks for a checkpoint's config."""
    return _headed(_full_config(model), causal=False) is not None


def _auto_class(model: Model, config: Any) -> Any:
    from transformers import AutoModel

    own = getattr(config, "auto_map", None) if model.trust_remote_code else None
    if own:
        return _own_class(own, model)
    found = _headed(config, causal=model.family.causal) if model.has_head else None
    if found is None and type(config) not in AutoModel._model_mapping:
        raise CannotRunError(f"transformers has no model for a {type(config).__name__}.")
    return found or AutoModel


def _own_class(auto_map: dict[str, str], model: Model) -> Any:
    """The class by which transformers loads a model whose own code may run."""
    import transformers

    named = [name for name in HEADED[model.family.causal] if name in auto_map and model.has_head]
    return getattr(transformers, named[0] if named else "AutoModel")


def _headed(config: Any, *, causal: bool) -> Any | None:
    import transformers

    every = (getattr(transformers, name, None) for name in HEADED[causal])
    return next((one for one in every if one and type(config) in one._model_mapping), None)


def require_whole(model: Model) -> None:
    """Raise ModelError where the live model has no place for a tensor, or lacks one.

    Compares names and shapes only: reads no weight and runs nothing.
    """
    own, config = type(skeleton(model)), _full_config(model)
    _, found = _load(model, own, None, config, state_dict=model.checkpoint.unread())
    _refuse_contradictions(model, found)
    _refuse_unused(model, found, model.n_layers)


def skeleton(model: Model) -> nn.Module:
    """The live model with one block and without weights (on the meta device), to ask how it works.

    Raises CannotRunError where transformers has no class for it.
    """
    config = truncated(_full_config(model), 1)
    with _loading(model), torch.device("meta"):
        more = {"trust_remote_code": True} if model.trust_remote_code else {}
        return _auto_class(model, config).from_config(config, **more)


def _load(
    model: Model, chosen: Any, folder: Path | None, config: Any, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """A live model, and which tensors it misses, does not expect, or has in another shape."""
    with _loading(model):
        found = chosen.from_pretrained(
            folder,
            config=config,
            experts_implementation="eager",
            local_files_only=True,
            trust_remote_code=model.trust_remote_code,
            ignore_mismatched_sizes=True,  # reported by the caller, with both shapes
            output_loading_info=True,
            **{"dtype": model.dtype} | options,
        )
    model.checkpoint.require_unchanged()  # meanwhile a training may have saved its next step
    return found


@contextmanager
def _loading(model: Model) -> Iterator[None]:
    """transformers without its own messages; what it fails on becomes one sentence."""
    with quiet():
        try:
            yield
        except CannotRunError:
            raise
        except (ImportError, MemoryError, torch.OutOfMemoryError) as error:
            reason = first_line(error)
            raise CannotRunError(f"{model.folder} cannot be run here: {reason}.") from error
        except Exception as error:
            reason = first_line(error)
            raise ModelError(f"transformers cannot load {model.folder}: {reason}.") from error


def _refuse_contradictions(model: Model, found: dict[str, Any]) -> None:
    """A tensor of another shape than the config asks for, or one that is not there.

    Transformers goes on with random numbers, or with 1 for a gain; our reading takes it as absent.
    """
    mismatched: list[Any] = list(found.get("mismatched_keys") or [])
    for name, stored, wanted in sorted(mismatched, key=str):
        raise ModelError(
            f"{model.folder}: {name} is {tuple(stored)}, but its config asks for {tuple(wanted)}."
        )
    missing: list[str] = list(found.get("missing_keys") or [])
    for name in sorted(missing):
        if not is_beside(name):
            raise ModelError(
                f"{model.folder} lacks {name}, which its config asks for{_old_name(model, name)}."
            )


def _old_name(model: Model, name: str) -> str:
    """That a file holds a norm's gain or shift by a name which transformers does not read."""
    part, _, end = name.rpartition(".")
    old = {"weight": f"{part}.gamma", "bias": f"{part}.beta"}.get(end)
    held = old is not None and old in model.checkpoint
    return f" (it holds {old}, which is not read: rename it)" if held else ""


def is_beside(name: str) -> bool:
    """Whether a tensor belongs to a part that no text's states pass through."""
    return any(part.startswith(BESIDE) for part in name.split("."))


def _refuse_unused(model: Model, found: dict[str, Any], n_layers: int) -> None:
    """A weight of a block that runs, for which the live model has no place (relative positions that
    transformers gave up, an adapter that was never merged): it was trained as another model."""
    layout, checkpoint = model.layout, model.checkpoint
    unused = set(found.get("unexpected_keys") or ())
    blocks = tuple(layout.block(l) for l in range(n_layers))
    for name in sorted(checkpoint.names):
        if not unused & {name, name.removeprefix(layout.prefix)}:
            continue
        in_block = name.startswith(blocks) and (
            checkpoint.is_weight(name) or name.endswith(TRAINED)
        )
        if in_block or any(mark in name for mark in ADAPTER_MARKS):
            raise ModelError(
                f"{model.folder} holds {name}, for which transformers' {model.config.model_type} "
                "has no place: what it runs is not the model that was trained."
            )


def _check_memory(model: Model, n_layers: int, dtype: torch.dtype) -> None:
    """Refuse before loading what this machine's memory would not hold."""
    import psutil

    stored = model.checkpoint.n_bytes * n_layers / model.n_layers
    unit = torch.finfo(model.stored_dtype).bits
    needed = stored * torch.finfo(dtype).bits / unit
    free = psutil.virtual_memory().available
    if needed * 1.2 > free:
        raise ResourceError(
            f"the live model needs about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB "
            'are free: check fewer layers (layers="first").'
        )
