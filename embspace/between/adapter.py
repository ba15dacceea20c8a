"""A LoRA adapter's change of every weight, read from its two factors, without the base twice."""

import math
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelError
from ..live.proved import ProvedModel
from ..weights.json_files import check_safetensors, path_of, read_json_file
from ..weights.model import Model

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
ROOT = "base_model.model."
UNREAD = {  # options that change more than B A, and what they do
    "layer_replication": "repeats layers of the base",
    "use_dora": "scales the changed weight",
    "use_qalora": "pools the input",
    "use_bdlora": "uses factors in blocks",
    "alora_invocation_tokens": "acts after some tokens only",
    "arrow_config": "chooses among adapters token by token",
    "modules_to_save": "replaces whole modules",
    "target_parameters": "changes parameters that are not the weight of a module",
    "trainable_token_indices": "replaces rows of the embedding",
    "lora_bias": "adds a bias",
}
STARTS = ("gaussian", "eva", "orthogonal")  # by name; they leave the base as it is
KNOWN = {  # options that are read, or that say nothing of the change
    *("peft_type", "task_type", "auto_mapping", "peft_version", "inference_mode"),
    *("base_model_name_or_path", "revision", "target_modules", "exclude_modules"),
    *("layers_to_transform", "layers_pattern", "lora_dropout", "init_lora_weights", "bias"),
    *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out"),
    *("eva_config", "loftq_config", "corda_config", "qalora_group_size", "megatron_core"),
}
FACTOR = re.compile(r"(?P<path>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")


def is_adapter(name: str | Path) -> bool:
    """Whether a name is a folder with an adapter and no whole model in it."""
    path = path_of(str(name))
    return (path / CONFIG).is_file() and not (path / "config.json").is_file()


class Adapter:
    """The tensors of a base model as an adapter changes them: ΔW = s B A, zeros elsewhere.

    Stands where a `Checkpoint` does, so that a `Model` over it reads changes head by head and row
    by row. s = α / r, or α / √r (rsLoRA). Raises ModelError for an adapter whose config or tensors
    say that it changes more than that, and for one that does not fit the base.
    """

    def __init__(self, folder: str | Path, base: Model) -> None:
        self.folder, self.base = path_of(str(folder)), base
        self.config = _config(self.folder)
        self._factors = self._read()
        self.names = base.checkpoint.names

    def __contains__(self, name: str) -> bool:
        return name in self.base.checkpoint

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor of the base."""
        return self.base.checkpoint.shape(name)

    def tensor(self, name: str) -> Tensor:
        """The change of a tensor, (out, in) or as the base stores it."""
        if name not in self._factors:
            return torch.zeros(()).expand(self.shape(name))
        down, up, scale = self._factors[name]
        change = (up.double() @ down.double() * scale).float()
        return change.T if self._turned(name) else change

    @property
    def changed(self) -> list[str]:
        """Names of the tensors that it changes."""
        return sorted(self._factors)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over the adapter's own tensors and scales."""
        import hashlib

        digest = hashlib.sha256()
        for name, (down, up, scale) in sorted(self._factors.items()):
            digest.update(f"{name}|{scale}|{tuple(down.shape)}".encode())
            for factor in (down, up):
                digest.update(factor.float().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    def _read(self) -> dict[str, tuple[Tensor, Tensor, float]]:
        """(A, B, scale) for each weight of the base that is changed."""
        sides: dict[str, dict[str, Tensor]] = {}
        for name, tensor in _tensors(self.folder).items():
            found = FACTOR.fullmatch(name.removeprefix(ROOT))
            if found is None:
                raise ModelError(
                    f"{self.folder} holds {name[:120]}, which is no factor of a LoRA adapter: such "
                    "adapters are not read; merge it into the base and give that."
                )
            sides.setdefault(found["path"], {})[found["side"]] = tensor
        changed = {path: self._weight(path) for path in sides}
        if len(set(changed.values())) < len(changed):
            raise ModelError(f"{self.folder} changes one weight of {self.base.name} twice.")
        return {changed[path]: self._checked(path, pair) for path, pair in sides.items()}

    def _turned(self, name: str) -> bool:
        """Whether the base stores a weight as (in, out)."""
        family, at = self.base.layout.family, self.base.layout.prefix
        return family.transposed and name.startswith(at + family.block.split("{")[0])

    def _weight(self, path: str) -> str:
        """The base's tensor that a module path of the adapter stands for."""
        prefix = self.base.layout.prefix
        spellings = (path, prefix + path, path.removeprefix("model."), f"model.{path}")
        for spelling in spellings:
            if f"{spelling}.weight" in self.base.checkpoint:
                return f"{spelling}.weight"
        raise ModelError(f"{self.folder} changes {path[:120]}, which {self.base.name} has not.")

    def _checked(self, path: str, pair: dict[str, Tensor]) -> tuple[Tensor, Tensor, float]:
        if set(pair) != {"A", "B"}:
            raise ModelError(f"{self.folder} holds one factor of {path[:120]} without the other.")
        down, up = pair["A"], pair["B"]
        name = self._weight(path)
        turned, said = self._turned(name), bool(self.config.get("fan_in_fan_out"))
        if said != turned:
            raise ModelError(
                f"{self.folder / CONFIG} says fan_in_fan_out {str(said).lower()}, but "
                f"{self.base.name} stores {path[:120]} as {'(in, out)' if turned else '(out, in)'}."
            )
        shape = self.shape(name)
        wanted = shape[::-1] if turned else shape
        if down.ndim != 2 or up.ndim != 2 or down.shape[0] != up.shape[1]:
            raise ModelError(f"{self.folder}: the factors of {path[:120]} do not fit each other.")
        if (up.shape[0], down.shape[1]) != wanted:
            raise ModelError(
                f"{self.folder}: the change of {path[:120]} is {(up.shape[0], down.shape[1])}, "
                f"but {self.base.name} has {wanted} (out, in) there."
            )
        return down, up, self._scale(path, down.shape[0])

    def _scale(self, path: str, rank: int) -> float:
        """α over r or √r; both may be set apart for some modules."""
        alpha = self._set_for(path, "alpha_pattern", "lora_alpha")
        stated = self._set_for(path, "rank_pattern", "r")
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or stated != rank:
            raise ModelError(
                f"{self.folder}: rank {stated} and alpha {alpha} of {path[:120]} do not fit its "
                f"factors of rank {rank}."
            )
        return alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def _set_for(self, path: str, patterns: str, default: str) -> Any:
        """The value of the first pattern that a module's path ends in, as peft matches them."""
        for pattern, value in (self.config.get(patterns) or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", path):
                return value
        return self.config.get(default)


def changes_of(folder: str | Path, base: Model) -> tuple[Model, Adapter]:
    """The adapter's changes as a Model of the base's shape, whose weights are differences."""
    base.require_proof()  # differences of weights run in no forward pass of their own
    adapter = Adapter(folder, base)
    layout: Any = base.layout
    stand_in: Any = adapter  # has what a Model asks of a Checkpoint
    changes = ProvedModel(
        str(folder),
        base.config,
        layout,
        stand_in,
        dtype=base.dtype,
        device=str(base.device),
        stored_as="a LoRA adapter",
        check=False,
    )
    return changes, adapter


def _config(folder: Path) -> dict[str, Any]:
    """What the adapter says of itself. Raises ModelError unless its change is s B A alone."""
    path = folder / CONFIG
    config = read_json_file(path)
    if not isinstance(config, dict):
        raise ModelError(f"{path} describes no adapter.")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{folder} is an adapter of kind {str(kind)[:40]}; only LoRA is read.")
    start = config.get("init_lora_weights")
    if not (start is None or isinstance(start, bool) or start in STARTS):
        raise _unread(path, "init_lora_weights", start, "may change the base before training")
    if config.get("bias") not in (None, "none"):
        raise _unread(path, "bias", config["bias"], "changes biases too")
    for option, value in config.items():
        if option not in KNOWN and value not in (None, False, [], {}, ""):
            raise _unread(path, option, value, UNREAD.get(option, "is not known here"))
    for option in ("rank_pattern", "alpha_pattern"):
        _check_patterns(path, option, config.get(option))
    return config


def _unread(path: Path, option: str, value: Any, why: str) -> ModelError:
    return ModelError(
        f"{path} says {option} {str(value)[:80]}, which {why}: only a change s B A is read; "
        "merge the adapter into its base and give that."
    )


def _check_patterns(path: Path, option: str, patterns: Any) -> None:
    """Raise ModelError unless patterns are regular expressions with a number each."""
    if patterns is None:
        return
    if not isinstance(patterns, dict):
        raise ModelError(f"{path}: {option} is {str(patterns)[:80]}, expected patterns by module.")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ModelError(f"{path}: {option} has {pattern[:80]!r}, no pattern: {error}.") from (
                error
            )


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    path = folder / TENSORS
    if not path.is_file():
        raise ModelError(f"{folder} holds no {TENSORS}: pickled adapters are not read.")
    check_safetensors(path)
    found = load_file(path)
    if not found:
        raise ModelError(f"{path} is empty.")
    return found
