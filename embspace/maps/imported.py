"""Maps and lenses that others published, read as Maps: tensors only, nothing is run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import MapsError, ModelError
from ..messages import first_line
from ..weights.json_files import check_safetensors, path_of, read_json_file
from ..weights.tensors import FLOATS
from .maps import KEY, Maps, PairFit

if TYPE_CHECKING:
    from ..weights.model import Model

TUNED, JACOBIAN, PLAIN = "tuned lens", "Jacobian lens", "published maps"
PARAMS, CONFIG = "params.pt", "config.json"
PICKLES = (".pickle", ".pkl")
NAME = re.compile(r"(mat|bias)\.(\d{1,4})-(\d{1,4})")  # of a tensor in a plain file
CONVENTIONS = ("rows", "columns")  # y = x A, or y = A x: how a plain file's matrices are multiplied
CONVERTED = """\
import pickle, safetensors.torch, torch; from pathlib import Path; \
A = torch.as_tensor(pickle.loads(Path("0_12.pickle").read_bytes())); \
tensors = {"mat.0-12": A.float().contiguous()}; \
said = {"convention": "columns"}; \
safetensors.torch.save_file(tensors, "published.safetensors", metadata=said)"""


def read_maps(path: str | Path, model: "Model") -> Maps:
    """Maps of a model from a file or folder: ours, published matrices, a tuned or Jacobian lens.

    Ours carry the hash of their weights and are refused for others. A tuned lens (a folder with
    params.pt and config.json) maps state l to x (I + W^T) + b; a Jacobian lens ({"J": {l: d × d}})
    maps the output of block l, state l + 1, to x J^T. A plain safetensors file holds `mat.0-12`
    (d × d, from state 0 to state 12) and perhaps `bias.0-12` (d), and says in its metadata under
    "convention" whether its matrices meet "rows" (x A, as ours) or "columns" (A x, as the paper's).
    These three name no weights: width and layers are checked, and a note says that the rest is not.
    Raises MapsError for anything else, pickles of arrays among them (the paper's own files):
    reading those would run their code; the error says how to convert one.
    """
    place = path_of(str(path))
    if place.is_dir():
        return _tuned(place, model)
    if place.suffix in PICKLES:
        raise MapsError(
            f"{place} is a pickle, which can run any code when it is read, so embspace does not; "
            "if you trust whoever made it, convert it in Python, with its own names and layers: "
            f"{CONVERTED}"
        )
    if place.suffix in (".pt", ".pth", ".bin"):
        return _jacobian(place, model)
    plain = _plain_tensors(place)
    if plain is not None:
        return _plain(place, *plain, model)
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


def _plain_tensors(path: Path) -> tuple[dict[str, Tensor], str | None] | None:
    """Tensors and convention of a plain file; None where it is of another layout, or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        check_safetensors(path)
        with safe_open(path, framework="pt") as file:
            said, names = file.metadata() or {}, list(file.keys())
            if KEY in said or not any(NAME.fullmatch(name) for name in names):
                return None
            return {name: file.get_tensor(name) for name in names}, said.get("convention")
    except (ModelError, SafetensorError, OSError, ValueError):
        return None  # `Maps.load` says what is wrong with it


def _plain(path: Path, tensors: dict[str, Tensor], convention: str | None, model: "Model") -> Maps:
    if convention not in CONVENTIONS:
        raise MapsError(
            f'{path} does not say how its matrices are multiplied: write "rows" (x A) or '
            '"columns" (A x) into its metadata under "convention".'
        )
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match = NAME.fullmatch(name)
        if not match:
            raise MapsError(f"{path} holds {name[:40]!r}; expected mat.0-12 and bias.0-12.")
        kind, source, target = match[1], int(match[2]), int(match[3])
        if not source < target <= model.n_layers:
            raise MapsError(
                f"{path}: {name} does not go from a state to a later one of {model.name}."
            )
        _check(tensor, (model.d, model.d)[: 2 if kind == "mat" else 1], name, path, model)
        made = tensor.float().T if kind == "mat" and convention == "columns" else tensor.float()
        found[f"{'A' if kind == 'mat' else 'b'}.{source}-{target}"] = made.contiguous()
    alone = [name for name in found if name[0] == "b" and f"A{name[1:]}" not in found]
    if alone:
        raise MapsError(f"{path} holds bias{alone[0][1:]} without mat{alone[0][1:]}.")
    return _as_maps(PLAIN, path, found, model, None)


def _as_maps(
    kind: str, path: Path, tensors: dict[str, Tensor], model: "Model", said: str | None
) -> Maps:
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise MapsError(f"{path}: {name} holds NaN or infinity.")
    names = [name.removeprefix("A.").split("-") for name in tensors if name.startswith("A.")]
    pairs = tuple(_unscored(source, target) for source, target in names)
    note = (
        f"{kind[0].upper()}{kind[1:]}, read from {path.name}"
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
