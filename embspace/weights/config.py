"""The config of a local model folder, read without running its code."""

from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..messages import first_line
from .json_files import read_json_file
from .layout import text_part

ADAPTER = "adapter_config.json"
ADAPTERS = (ADAPTER, "adapter_model.safetensors", "adapter_model.bin")


def read_config(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """The text model's config of a local folder. Raises ModelError; runs no code of the folder."""
    raw = raw_config(folder)
    _refuse_quantised(folder, raw)
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        raise ModelError(_config_failure(folder, raw, error)) from error
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{config.model_type} is an encoder-decoder model; those are not read.")
    text = text_part(config)
    # a config around the text model's decides on its own whether the head is tied
    text.tie_word_embeddings = getattr(config, "tie_word_embeddings", True)
    return text


def raw_config(folder: Path) -> dict[str, Any]:
    """The config as its file says it. Raises ModelError where that is no model's."""
    path = folder / "config.json"
    if not path.is_file():
        if (folder / ADAPTER).is_file():
            raise ModelError(f"{folder} is an adapter without its base model; merge it first.")
        raise ModelError(f"{folder} holds no config.json: not a transformers model folder.")
    raw = read_json_file(path)
    if not isinstance(raw, dict) or "model_type" not in raw:
        raise ModelError(f"{path} names no model_type: not a transformers model folder.")
    return raw


def refuse_other_weights(folder: Path) -> None:
    """Raise ModelError where transformers would run other weights than those that are read."""
    named = raw_config(folder).get("transformers_weights")
    if named is not None:
        raise ModelError(
            f"the config of {folder} says that its weights are in {str(named)[:80]!r} "
            "(transformers_weights): give a folder of those alone, under their usual name."
        )
    found = next((name for name in ADAPTERS if (folder / name).is_file()), None)
    if found:
        raise ModelError(
            f"{folder} holds a whole model and an adapter ({found}): which is meant cannot be "
            "told; merge the adapter, or move it away."
        )


def _refuse_quantised(folder: Path, raw: dict[str, Any]) -> None:
    for part in (raw, raw.get("text_config")):
        found = part.get("quantization_config") if isinstance(part, dict) else None
        if found:
            method = found.get("quant_method") if isinstance(found, dict) else None
            raise ModelError(
                f"{folder} is a quantised checkpoint ({method or 'of unknown method'}): its "
                "packed weights are not read; give the unquantised one."
            )


def _config_failure(folder: Path, raw: dict[str, Any], error: Exception) -> str:
    if "auto_map" in raw:
        return (
            f"{folder} asks to run its own code ({raw['model_type']}): refused; "
            "allow it with trust_remote_code (--trust-remote-code) if you trust it."
        )
    return f"the config of {folder} cannot be used: {first_line(error)}."
