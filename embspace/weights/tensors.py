"""Lazy tensors: memory-mapped shards of a checkpoint, of which only what is asked for is read."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import ModelError
from ..messages import first_line
from .json_files import check_safetensors, read_json_file

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
FLOAT_NAMES = frozenset({"F16", "BF16", "F32", "F64"})  # the same in safetensors headers
LEGACY = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
SAFETENSORS, BIN = "model.safetensors", "pytorch_model.bin"
SAFETENSORS_INDEX, BIN_INDEX = f"{SAFETENSORS}.index.json", f"{BIN}.index.json"
# transformers' own order: where a folder holds several, the live model is of the same files
PREFERRED = (SAFETENSORS, SAFETENSORS_INDEX, BIN, BIN_INDEX)
PAGES, PAGE = 16, 4096
LONGEST_NAME = 255  # bytes of a file name


class Checkpoint:
    """The named tensors of a model folder; shards are checked when opened, bytes read when used.

    Safetensors are preferred; `.bin` files are read with `weights_only=True` and memory-mapped,
    so that no pickled code can run. Raises ModelError where files are missing, short, or packed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes_read: Counter[str] = Counter()
        self._opened: dict[str, Shard] = {}
        self._stats: dict[str, tuple[int, ...]] = {}
        self._read: set[str] = set()
        self._where = self._locate()

    @property
    def names(self) -> Iterable[str]:
        """Names of all tensors, old LayerNorm names (gamma, beta) made new."""
        return self._where.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, from the shard's header. Raises ModelError where there is none."""
        self._require(name)
        shard, stored = self._where[name]
        return self._shard(shard).shape(stored)

    def _require(self, name: str) -> None:
        if name not in self._where:
            raise ModelError(f"{self.folder} holds no tensor {name!r}.")

    def is_weight(self, name: str) -> bool:
        """Whether a name is that of a weight or a bias; masks called bias have more axes."""
        return name.endswith(".weight") or (name.endswith(".bias") and len(self.shape(name)) == 1)

    def tensor(self, name: str) -> Tensor:
        """The stored tensor, memory-mapped, in its stored dtype. Raises ModelError when packed."""
        self._require(name)
        tensor = self._stored(name)
        if tensor.dtype not in FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ModelError(
                f"{name} is stored as {kind} {list(tensor.shape)}: packed or quantised weights "
                "are not read; give the unquantised checkpoint."
            )
        if name not in self._read:
            self._read.add(name)
            self.bytes_read[self._where[name][0]] += tensor.numel() * tensor.element_size()
        return tensor

    def same(self, one: str, other: str) -> bool:
        """Whether two tensors are equal to the bit."""
        a, b = self._stored(one), self._stored(other)
        return a.dtype == b.dtype and torch.equal(a, b)

    def refuse_packed(self, name: str) -> None:
        """Raise ModelError for a tensor whose header says that it holds no floats."""
        shard, stored = self._where[name]
        if not self._shard(shard).is_float(stored):
            self.tensor(name)

    def not_finite(self) -> str | None:
        """The first tensor, by name, that holds NaN or infinity; reads them all."""
        for name, tensor in self._every():
            if tensor.dtype in FLOATS and not bool(tensor.isfinite().all()):
                return name
        return None

    def _every(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors as stored, sorted by name."""
        for name in sorted(self._where):
            yield name, self._stored(name)

    def _stored(self, name: str) -> Tensor:
        shard, stored = self._where[name]
        return self._shard(shard).tensor(stored)

    def unread(self) -> dict[str, Tensor]:
        """Stand-ins by the names that the files hold: of the right shapes, and without values."""
        return {stored: _unread(self.shape(name)) for name, (_, stored) in self._where.items()}

    @cached_property
    def n_bytes(self) -> int:
        """Size of all shards on disk, in bytes."""
        return sum((self.folder / shard).stat().st_size for shard in self._shards)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over names, dtypes, shapes and 16 evenly spaced 4 KiB pages of each tensor.

        Independent of how the tensors are spread over shards. Sampled, so that a model of any
        size costs a fraction of a second; training moves every page, a copy none. A single row
        that was changed by hand may lie between the pages: see `contents`.
        """
        digest = hashlib.sha256()
        for name, tensor in self._every():
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}".encode())
            digest.update(_pages(tensor))
        return digest.hexdigest()[:16]

    @cached_property
    def contents(self) -> str:
        """16 hex digits over every byte of every tensor, however they are spread over shards.

        Reads all weights: for what runs the model as well.
        """
        digest = hashlib.sha256()
        for name, tensor in self._every():
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()[:16]

    @cached_property
    def _shards(self) -> list[str]:
        return sorted({shard for shard, _ in self._where.values()})

    def _shard(self, name: str) -> "Shard":
        if name not in self._opened:
            self._stats[name] = _stat(self.folder / name)
            self._opened[name] = _open(self.folder / name)
        return self._opened[name]

    def require_unchanged(self) -> None:
        """Raise ModelError where a weight file is no longer the one that was opened."""
        for name, before in self._stats.items():
            if _stat(self.folder / name) != before:
                raise ModelError(
                    f"{name} in {self.folder} was written over while it was read: open the model "
                    "again."
                )

    def _locate(self) -> dict[str, tuple[str, str]]:
        """Tensor name -> (shard, name as stored)."""
        for name in PREFERRED:
            path = self.folder / name
            if path.is_file() and path.suffix == ".json":
                return self._from_index(path)
            if path.is_file():
                return self._renamed(dict.fromkeys(self._shard(name).names, name))
        raise ModelError(f"{self.folder} holds no weights: {_what_is_there(self.folder)}")

    def _from_index(self, path: Path) -> dict[str, tuple[str, str]]:
        try:
            weight_map = dict(read_json_file(path, "a readable shard index")["weight_map"])
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{path} is not a readable shard index ({first_line(error)})."
            ) from error
        for shard in {str(name): name for name in weight_map.values()}.values():
            self._check_shard(path, shard)
        located = self._renamed(weight_map)
        if path.name == SAFETENSORS_INDEX:
            self._check_index(path, weight_map)
        return located

    def _renamed(self, weight_map: dict[str, str]) -> dict[str, tuple[str, str]]:
        """Tensor name made new -> (shard, name as stored). Raises ModelError for one held twice."""
        located = {_modern(name): (shard, name) for name, shard in weight_map.items()}
        if len(located) < len(weight_map):
            twice = min(n for n in weight_map if _modern(n) != n and _modern(n) in weight_map)
            raise ModelError(
                f"{self.folder} holds {_modern(twice)} by its old name {twice} too: which of the "
                "two is meant cannot be told."
            )
        return located

    def _check_shard(self, index: Path, shard: str) -> None:
        if not _is_plain(shard):
            named = repr(shard)[:80]
            raise ModelError(f"{index} names {named}, which is not a file beside it; refused.")
        if not (self.folder / shard).is_file():
            raise ModelError(
                f"{shard} is named by {index.name} but missing from {self.folder}: "
                "the download is incomplete; fetch it again."
            )

    def _check_index(self, index: Path, weight_map: dict[str, str]) -> None:
        """Every tensor of the index is in its shard, and every shard is as long as it says."""
        for shard in sorted(set(weight_map.values())):
            present = self._shard(shard).names
            lost = [n for n, s in weight_map.items() if s == shard and n not in present]
            if lost:
                raise ModelError(f"{shard} lacks {lost[0]}, which {index.name} places there.")


class Shard:
    """One opened weight file."""

    def __init__(
        self,
        names: Iterable[str],
        shape: Callable[[str], tuple[int, ...]],
        is_float: Callable[[str], bool],
        tensor: Callable[[str], Tensor],
    ) -> None:
        self.names = frozenset(names)
        self.shape, self.is_float, self.tensor = shape, is_float, tensor


class _Unread(torch.Tensor):
    """A tensor of the meta device that stays there, wherever it is sent."""

    def to(self, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
        return super().to(device="meta", dtype=dtype)


def _unread(shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, device="meta").as_subclass(_Unread)


def _stat(path: Path) -> tuple[int, ...]:
    """What changes when a file is written over or replaced."""
    try:
        found = path.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def _open(path: Path) -> Shard:
    return _open_safetensors(path) if path.suffix == ".safetensors" else _open_bin(path)


def _open_safetensors(path: Path) -> Shard:
    check_safetensors(path)
    try:
        file = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ModelError(f"{path.name} is not a whole safetensors file ({error}).") from error

    def tensor(name: str) -> Tensor:
        try:
            return file.get_tensor(name)
        except SafetensorError as error:  # of a kind of numbers that torch has not
            raise ModelError(f"{name} in {path.name} cannot be read ({error}).") from error

    return Shard(
        file.keys(),
        lambda name: tuple(file.get_slice(name).get_shape()),
        lambda name: file.get_slice(name).get_dtype() in FLOAT_NAMES,
        tensor,
    )


def _open_bin(path: Path) -> Shard:
    """A pickled checkpoint, tensors only; the old (pre-zip) format cannot be memory-mapped."""
    mappable = _starts_with(path, b"PK")
    try:
        state = torch.load(path, weights_only=True, mmap=mappable, map_location="cpu")
        state = {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}
    except Exception as error:
        raise ModelError(
            f"{path.name} is refused: it is damaged or holds more than tensors "
            f"({first_line(error, length=120)})."
        ) from error
    for name, tensor in state.items():
        if not isinstance(name, str) or tensor.layout != torch.strided or tensor.is_meta:
            raise ModelError(
                f"{path.name} is refused: {str(name)[:80]!r} is no named, dense tensor with values."
            )
    return Shard(
        state,
        lambda name: tuple(state[name].shape),
        lambda name: state[name].dtype in FLOATS,
        state.__getitem__,
    )


def _is_plain(name: object) -> bool:
    """Whether a shard's name is that of a weight file in the same folder, and nothing else."""
    return (
        isinstance(name, str)
        and name.isprintable()
        and len(name.encode("utf8", "replace")) <= LONGEST_NAME
        and Path(name).name == name
        and name.endswith((".safetensors", ".bin"))
    )


def _starts_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _modern(name: str) -> str:
    for old, new in LEGACY.items():
        name = name.replace(old, new)
    return name


def _pages(tensor: Tensor) -> bytes:
    flat = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0)
    if flat.numel() <= PAGES * PAGE:
        return flat.numpy().tobytes()
    starts = torch.linspace(0, flat.numel() - PAGE, PAGES).long().tolist()
    return b"".join(flat[start : start + PAGE].numpy().tobytes() for start in starts)


def _what_is_there(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return "it is an adapter without its base model; merge it into the base first."
    others = sorted(p.name for p in folder.glob("*") if p.suffix in (".gguf", ".h5", ".msgpack"))
    if others:
        return f"only {', '.join(others[:3])}; give a .gguf file itself, or convert to safetensors."
    return "expected model.safetensors, its shard index, or pytorch_model.bin."
