"""Lenses that others published, read as maps to the last state: tensors only, nothing is run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import MapsError
from ..messages import first_line
from ..weights.json_files import path_of, read_json_file
from ..weights.tensors import FLOATS
from .maps import Maps, PairFit

if TYPE_CHECKING:
    from ..weights.model import Model

TUNED, JACOBIAN = "tuned lens", "Jacobian lens"
PARAMS, CONFIG = "params.pt", "config.json"
PICKLES = (".pickle", ".pkl")


def read_maps(path: str | Path, model: "Model") -> Maps:
    """Maps of a model from a file or folder: ours, a tuned lens, or a Jacobian lens.

    Ours carry the hash of their weights and are refused for others. A tuned lens (a folder with
    params.pt and config.json) maps state l to x (I + W^T) + b; a Jacobian lens ({"J": {l: d × d}})
    maps the output of block l, state l + 1, to x J^T. Those two name no weights: width and layers
    are checked, and a note says that the rest is not. Raises MapsError for anything else, pickles
    of arrays among them (the paper's own files): reading those would run their code.
    """
    place = path_of(str(path))
    if place.is_dir():
        return _tuned(place, model)
    if place.suffix in PICKLES:
        raise MapsError(
            f"{place} is a pickle, which can run code when it is read: it is refused; have it "
            "converted to safetensors by someone who trusts it, or fit the maps again."
        )
    if place.suffix in (".pt", ".pth", ".bin"):
        return _jacobian(place, model)
    return Maps.load(place, model)


def _tuned(folder: Path, model: "Model") -> Maps:
    if not (folder / PARAMS).is_file() or not (folder / CONFIG).is_file():
        raise MapsError(f"{folder} is no tuned lens: it has no {PARAMS} and {CONFIG}.")
    config = read_json_file(folder / CONFIG)
    config = config if isinstance(config, dict) else {}
    state = _tensors(folder / PARAMS)
    found: dict[str, Tensor] = {}
    final = str(model.n_layers)
    for l in range(model.n_layers):
        weight = state.get(f"{l}.weight")
        if weight is None:
            raise MapsError(f"{folder} has no translator {l} of the {model.n_layers} layers.")
        _check(weight, (model.d, model.d), f"translator {l}", folder, model)
        found[f"A.{l}-{final}"] = torch.eye(model.d) + weight.float().T
        bias = state.get(f"{l}.bias")
        if bias is not None:
            _check(bias, (model.d,), f"the shift of translator {l}", folder, model)
            found[f"b.{l}-{final}"] = bias.float()
    said = config.get("base_model_name_or_path")
    return _as_maps(TUNED, folder, found, model, said if isinstance(said, str) else None)


def _jacobian(path: Path, model: "Model") -> Maps:
    loaded = _load(path)
    each = loaded.get("J") if isinstance(loaded, dict) else None
    if not isinstance(each, dict) or not each:
        raise MapsError(f'{path} is no Jacobian lens: it holds no matrices by layer under "J".')
    found: dict[str, Tensor] = {}
    for l, J in each.items():
        if type(l) is not int or not 0 <= l < model.n_layers:
            raise MapsError(f"{path} has a layer {str(l)[:40]!r}; {model.name} has none.")
        _check(J, (model.d, model.d), f"layer {l}", path, model)
        if l + 1 < model.n_layers:  # the last block's output is the last state itself
            found[f"A.{l + 1}-{model.n_layers}"] = J.float().T.contiguous()
    said = loaded.get("model_id") if isinstance(loaded, dict) else None
    return _as_maps(JACOBIAN, path, found, model, said if isinstance(said, str) else None)


def _as_maps(
    kind: str, path: Path, tensors: dict[str, Tensor], model: "Model", said: str | None
) -> Maps:
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise MapsError(f"{path}: {name} holds NaN or infinity.")
    names = [name.removeprefix("A.").split("-") for name in tensors if name.startswith("A.")]
    pairs = tuple(_unscored(source, target) for source, target in names)
    note = (
        f"A {kind} read from {path.name}"
        + (f", made for {said[:80]}" if said else "")
        + ": its file names no weights, so only width and layers were checked."
    )
    about = model.provenance | {
        "kind": kind,
        "d": model.d,
        "n_layers": model.n_layers,
        "imported_from": path.name,
        "notes": [note],
        "rows": None,
    }
    return Maps(about, pairs, tensors)


def _unscored(source: str, target: str) -> PairFit:
    return PairFit(source, target, None, None, None, None, 0, 0, None, None)


def _check(tensor: Any, wanted: tuple[int, ...], what: str, path: Path, model: "Model") -> None:
    """Raise MapsError for anything but dense floats, with values, of that shape."""
    shape = tuple(getattr(tensor, "shape", ()))
    if not isinstance(tensor, Tensor) or shape != wanted:
        raise MapsError(
            f"{path}: {what} is {shape or type(tensor).__name__}, expected {wanted} "
            f"for {model.name}."
        )
    if tensor.dtype not in FLOATS or tensor.layout != torch.strided or tensor.is_meta:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise MapsError(f"{path}: {what} holds no plain floats ({kind}).")


def _tensors(path: Path) -> dict[str, Tensor]:
    loaded = _load(path)
    if not isinstance(loaded, dict) or not all(isinstance(t, Tensor) for t in loaded.values()):
        raise MapsError(f"{path} holds no tensors by name.")
    return loaded


def _load(path: Path) -> Any:
    """A torch file, tensors and plain values only. Raises MapsError for anything else."""
    if not path.is_file():
        raise MapsError(f"there is no file {str(path)!r}.")
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise MapsError(
            f"{path} is refused: it is damaged or holds more than tensors "
            f"({first_line(error, length=120)})."
        ) from error
