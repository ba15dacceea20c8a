"""A live model as a folder of files: the one that it came from, or a copy kept in the cache."""

from pathlib import Path
from typing import Any

from torch import nn

from ..cache import cache_folder, replacing_folder, told
from ..errors import EmbspaceError, ModelError
from ..messages import quiet
from ..weights.checksum import seal
from ..weights.json_files import path_of
from ..weights.source import Source
from ..weights.tokenizer import load_tokenizer
from .attach import attach, require_values
from .opening import open_model

KIND = "live"  # the folder of the cache


def source_of(module: nn.Module, tokenizer: Any | None = None) -> Source:
    """The files that a live model is read from.

    The folder that it was loaded from, where its weights and settings are still those of the live
    model; otherwise a copy in the cache, written whole or not at all and once for the same weights.

    Args:
        module: A transformers model, in any dtype and on any device; it is not changed.
        tokenizer: Its tokenizer; that of the folder it was loaded from unless given.

    Raises:
        ModelError: It is no transformers model, holds no values (meta tensors), packed ones, or an
            adapter that is not merged.
        EmbspaceError: The copy cannot be written.
    """
    from transformers import PreTrainedTokenizerBase

    _require_whole_model(module)
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ModelError(
            f"tokenizer must be a transformers tokenizer, not {str(tokenizer)[:60]!r}."
        )
    came_from = _came_from(module)
    own = load_tokenizer(came_from) if came_from else None
    if came_from and _alike(own, tokenizer) and _unchanged(came_from, module):
        return Source(came_from)
    folder = _copy(module, tokenizer or own)
    what = type(module).__name__
    return Source(folder, (f"The live {what} was written to {folder}, which is what is read.",))


def _require_whole_model(module: Any) -> None:
    from transformers import PreTrainedModel

    if not isinstance(module, PreTrainedModel):
        raise ModelError(
            f"{type(module).__name__} is no transformers model: give a name, a folder or a "
            "PreTrainedModel (of PEFT's, what merge_and_unload() returns)."
        )
    if getattr(module, "_hf_peft_config_loaded", False):
        raise ModelError("the live model carries an adapter: merge it first.")
    if getattr(module.config, "quantization_config", None):
        raise ModelError("the live model is quantised: its packed weights are not read.")
    require_values(module)


def _came_from(module: Any) -> Path | None:
    """The local model folder that a live model names, or None."""
    named = getattr(module, "name_or_path", None)
    path = path_of(str(named)) if named else None
    return path if path is not None and (path / "config.json").is_file() else None


def _alike(one: Any | None, other: Any | None) -> bool:
    """Whether a given tokenizer is the folder's; none given is no other."""
    return other is None or (one is not None and one.get_vocab() == other.get_vocab())


def _unchanged(folder: Path, module: nn.Module) -> bool:
    try:
        attach(open_model(folder, check=False), module)
    except EmbspaceError:  # trained further, or of another kind: it is copied
        return False
    return True


def _copy(module: Any, tokenizer: Any | None) -> Path:
    """The cached copy of a live model, written where it is not there yet."""
    words = "" if tokenizer is None else str(sorted(tokenizer.get_vocab().items()))
    digest = seal(f"{module.config.to_json_string(use_diff=False)}|{words}", module.state_dict())
    target = cache_folder(KIND) / f"{module.config.model_type}-{digest[:16]}"
    if not target.is_dir():
        with told(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(target) as made, quiet():
            module.save_pretrained(made)
            if tokenizer is not None:
                tokenizer.save_pretrained(made)
    return target
