"""One door: a Hub name, a folder, a .gguf file, an alias or a bundled sample becomes a Model."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import torch

from ..errors import ModelError
from ..live.settling import by_shape, is_uncertain, refuse_decoding, settled
from ..messages import first_line
from .aliases import ALIASES, bundled, bundled_names
from .hub import HubFolder
from .json_files import path_of, read_json_file
from .layout import resolve, text_part
from .model import Model
from .registry import BY_TYPE, Family
from .tensors import Checkpoint

AnyModel = TypeVar("AnyModel", bound=Model)
ADAPTER = "adapter_config.json"
ADAPTERS = (ADAPTER, "adapter_model.safetensors", "adapter_model.bin")
TOKENIZER_FILES = ("tokenizer*", "vocab.*", "*.model")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def load(
    name: str | Path,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    family: Family | None = None,
    check: bool = True,
    kind: type[AnyModel] = Model,
) -> AnyModel:
    """The weights of a model, opened lazily; no torch module is built and nothing is computed.

    The first number asked for proves the reading: no tensor is missing or unused, and the first
    block rebuilds the live model's own numbers. A proof is kept in the user's cache; `check=False`
    reads without one.

    Takes a local folder, a `.gguf` file, a bundled sample, an alias (`bert-seed0` …) or a Hub
    name. `dtype` is that of the arithmetic (float32 or float64), whatever the file stores. An
    architecture that no family entry knows is read by its shape, and only once its certificate
    passes; `family` gives the paths by hand. Local input opens no connection.
    Raises ModelError or CertificateError.
    """
    if family is not None and not isinstance(family, Family):
        raise ModelError(f"family must be a Family, not {str(family)[:80]!r}.")
    source = _source(str(name), revision)
    if revision is not None and not source.has_revisions:
        raise ModelError(f"{name} is no Hub name, so it has no revision {str(revision)[:80]!r}.")
    folder = source.folder
    config = read_config(folder, trust_remote_code=trust_remote_code)
    source.fetch_weights()  # gigabytes perhaps, and only of a model whose config can be read
    checkpoint = Checkpoint(folder)
    _refuse_other_weights(folder)
    options: dict[str, Any] = {
        "dtype": _dtype(dtype),
        "device": _device(device),
        "revision": revision,
        "notes": source.notes,
        "stored_as": source.stored_as,
        "check": check,
    }

    def read(entry: Family) -> AnyModel:
        return kind(str(name), config, resolve(entry, config, checkpoint), checkpoint, **options)

    known = family or BY_TYPE.get(config.model_type)
    if known is None:
        return by_shape(read, config)
    refuse_decoding(known, config)
    if check and family is None and is_uncertain(config, _raw_config(folder)["model_type"]):
        return settled(read, known, config)
    return read(known)


def read_config(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """The text model's config of a local folder. Raises ModelError; runs no code of the folder."""
    raw = _raw_config(folder)
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


def _refuse_quantised(folder: Path, raw: dict[str, Any]) -> None:
    for part in (raw, raw.get("text_config")):
        found = part.get("quantization_config") if isinstance(part, dict) else None
        if found:
            method = found.get("quant_method") if isinstance(found, dict) else None
            raise ModelError(
                f"{folder} is a quantised checkpoint ({method or 'of unknown method'}): its "
                "packed weights are not read; give the unquantised one."
            )


def _refuse_other_weights(folder: Path) -> None:
    """Raise ModelError where transformers would run other weights than those that are read."""
    named = _raw_config(folder).get("transformers_weights")
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


def load_tokenizer(model: Model, *, trust_remote_code: bool = False) -> Any | None:
    """The tokenizer beside the weights, or None where there is none. Opens no connection."""
    if not any(next(model.folder.glob(pattern), None) for pattern in TOKENIZER_FILES):
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            model.folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        raise ModelError(
            f"the tokenizer in {model.folder} cannot be opened ({first_line(error)})."
        ) from error


@dataclass(frozen=True)
class _Source:
    """The folder that weights are read from; for unpacked files, a note and their own dtype.

    fetch_weights: brings the weights where they are not there yet; has_revisions: of the Hub.
    """

    folder: Path
    notes: tuple[str, ...] = ()
    stored_as: str | None = None
    fetch_weights: Callable[[], None] = lambda: None
    has_revisions: bool = False


def _source(name: str, revision: str | None) -> _Source:
    path = path_of(name)
    if path.is_dir():
        return _Source(path)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"there is no file {path}.")
        from .gguf import unpacked

        return _Source(*unpacked(path))
    sample = bundled(name)
    if sample:
        return _Source(sample)
    if name.startswith("sample-"):
        raise ModelError(_unknown(name))
    if path.is_file() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(f"{name} is no model folder (expected config.json and weights in it).")
    hub = HubFolder(ALIASES.get(name, name), revision, _unknown(name))
    return _Source(hub.folder, fetch_weights=hub.fetch_weights, has_revisions=True)


def _unknown(name: str) -> str:
    if name in ALIASES:
        return f"{name!r} stands for {ALIASES[name]}."
    near = get_close_matches(name, [*bundled_names(), *ALIASES], n=1, cutoff=0.75)
    return (
        f"{name!r} is no local folder, .gguf file, alias or bundled sample "
        f"({', '.join(bundled_names())}){f'; did you mean {near[0]}?' if near else '.'}"
    )


def _raw_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        if (folder / ADAPTER).is_file():
            raise ModelError(f"{folder} is an adapter without its base model; merge it first.")
        raise ModelError(f"{folder} holds no config.json: not a transformers model folder.")
    raw = read_json_file(path)
    if not isinstance(raw, dict) or "model_type" not in raw:
        raise ModelError(f"{path} names no model_type: not a transformers model folder.")
    return raw


def _config_failure(folder: Path, raw: dict[str, Any], error: Exception) -> str:
    if "auto_map" in raw:
        return (
            f"{folder} asks to run its own code ({raw['model_type']}): refused; "
            "allow it with trust_remote_code (--trust-remote-code) if you trust it."
        )
    return f"the config of {folder} cannot be used: {first_line(error)}."


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise ModelError(f"dtype {dtype} is not offered for the arithmetic: float32 or float64.")
    return found


def _device(device: str) -> str:
    name = str(device) if isinstance(device, str | torch.device) else ""
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", name):
        raise ModelError(f"{str(device)[:80]!r} is not a device: use cpu, cuda or cuda:N.")
    if name == "cpu":
        return name
    if not torch.cuda.is_available():
        raise ModelError(f"device {name!r} was asked for, but this torch sees no CUDA GPU.")
    number, n_gpus = int(name[5:] or 0), torch.cuda.device_count()
    if number >= n_gpus:
        raise ModelError(f"device {name!r} does not exist: torch sees {n_gpus} CUDA GPU(s).")
    return name
