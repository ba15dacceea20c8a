"""A LoRA adapter's change of every weight, read from its two factors, without the base twice."""

import math
import re
from collections.abc import Iterable
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
FACTOR = re.compile(r"(?P<path>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")


def is_adapter(name: str | Path) -> bool:
    """Whether a name is a folder with an adapter and no whole model in it."""
    path = path_of(str(name))
    return (path / CONFIG).is_file() and not (path / "config.json").is_file()


class Adapter:
    """The tensors of a base model as an adapter changes them: ΔW = s B A, zeros elsewhere.

    Stands where a `Checkpoint` does, so that a `Model` over it reads changes head by head and row
    by row. s = α / r, or α / √r (rsLoRA). Raises ModelError for other kinds of adapters, and for
    one that does not fit the base.
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
        return change.T if self.config.get("fan_in_fan_out") else change

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
        return {self._weight(path): self._checked(path, pair) for path, pair in sides.items()}

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
        shape = self.shape(self._weight(path))
        wanted = shape[::-1] if self.config.get("fan_in_fan_out") else shape
        if down.ndim != 2 or up.ndim != 2 or down.shape[0] != up.shape[1]:
            raise ModelError(f"{self.folder}: the factors of {path[:120]} do not fit each other.")
        if (up.shape[0], down.shape[1]) != wanted:
            raise ModelError(
                f"{self.folder}: the change of {path[:120]} is {(up.shape[0], down.shape[1])}, "
                f"but {self.base.name} has {wanted} (out, in) there."
            )
        return down, up, self._scale(path, down.shape[0])

    def _scale(self, path: str, rank: int) -> float:
        """α over r or √r; α may be set apart for some modules."""
        alpha = _of_module(self.config.get("alpha_pattern"), path, self.config.get("lora_alpha"))
        stated = _of_module(self.config.get("rank_pattern"), path, self.config.get("r"))
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or stated != rank:
            raise ModelError(
                f"{self.folder}: rank {stated} and alpha {alpha} of {path[:120]} do not fit its "
                f"factors of rank {rank}."
            )
        return alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)


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
    """What the adapter says of itself. Raises ModelError for a kind that is not plain LoRA."""
    config = read_json_file(folder / CONFIG)
    if not isinstance(config, dict):
        raise ModelError(f"{folder / CONFIG} describes no adapter.")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{folder} is an adapter of kind {str(kind)[:40]}; only LoRA is read.")
    for option in ("use_dora", "use_qalora", "alora_invocation_tokens", "target_parameters"):
        if config.get(option):
            raise ModelError(
                f"{folder} is a LoRA adapter with {option}, whose change of a weight is not B A: "
                "it is not read; merge it into the base and give that."
            )
    return config


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


def _of_module(patterns: Any, path: str, default: Any) -> Any:
    """A value set for the modules whose path ends in a pattern, as peft matches them."""
    items: Iterable[tuple[Any, Any]] = patterns.items() if isinstance(patterns, dict) else ()
    for pattern, value in items:
        try:
            if re.match(rf"(.*\.)?({pattern})$", path):
                return value
        except re.error:
            continue
    return default
