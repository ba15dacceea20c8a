"""Maps: fitted cross-layer matrices with all that says where they came from; kept in one file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..cache import replacing
from ..errors import MapsError, ModelError
from ..messages import first_line
from ..results import Result
from ..weights.checksum import sealed, unsealed
from ..weights.json_files import check_safetensors, path_of
from ..weights.settings import difference

if TYPE_CHECKING:
    from ..weights.model import Model

FORMAT = 1
KEY = "embspace_maps"  # of the metadata in the file
NO_RECORD = (ValueError, TypeError, AttributeError, RecursionError, OverflowError)
PAIR_KINDS = {"source": str, "target": str, "rank": int, "n_constant": int}  # numbers else
UNSAID = ("marks", "config", "contents")  # of the record: by what text and model are known again
MEANING = "state of the target layer ≈ x A (+ b), x (1 × d) a row of the source's states"


@dataclass(frozen=True)
class PairFit:
    """How one map was found and how good it is on held-out rows, beside the identity.

    r2, r2_id: mean over coordinates that vary (None without held-out rows); rank, condition and cut
    of the source's rows (see `Solution`); n_constant: coordinates left out of r².
    """

    source: str
    target: str
    r2: float | None
    r2_median: float | None
    r2_pooled: float | None
    r2_id: float | None
    n_constant: int
    rank: int
    condition: float | None
    cut: float | None


class _About(dict[str, Any]):
    """A record whose long lists (hashes of fitted lines) are printed by their length."""

    def __repr__(self) -> str:
        lists = {name: value for name, value in self.items() if isinstance(value, list)}
        long = {name: f"<{len(v)} entries>" for name, v in lists.items() if len(v) > 9}
        return dict.__repr__(dict(self) | long)


@dataclass(frozen=True)
class Maps(Result):
    """Linear maps between states of one model (or between the ends of its sub-modules).

    `maps[l, l2]` is A (d × d); `maps.apply(x, l, l2)` is x A (+ b), x a row. The matrices that the
    paper's authors published meet columns (mat @ v): theirs are the transposes A^T of ours.
    Spaces are named by layer number, or `3.attn.in`, `3.attn.out` for sub-modules. `about` records
    model, hash, tokenizer, text, positions, rows, seed, kind and dtypes.
    """

    about: dict[str, Any]
    pairs: tuple[PairFit, ...]
    tensors: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        object.__setattr__(self, "about", _About(self.about))

    def __getitem__(self, pair: tuple[int | str, int | str]) -> Float[Tensor, "d d"]:
        """A of source → target. Raises MapsError where that pair was not fitted."""
        name = self._name(pair)
        return self.tensors[f"A.{name}"].float()

    def __contains__(self, pair: object) -> bool:
        return isinstance(pair, tuple) and f"A.{pair[0]}-{pair[1]}" in self.tensors

    def __repr__(self) -> str:
        return (
            f"Maps({self.about.get('model')!r}, {self.kind}, {len(self.pairs)} pairs, d={self.d})"
        )

    @property
    def kind(self) -> str:
        """mat, affine, ridge, refined or where they were imported from."""
        return str(self.about.get("kind"))

    @property
    def d(self) -> int:
        """Width of the states."""
        return int(self.about["d"])

    @property
    def n_layers(self) -> int:
        """L of the model they belong to."""
        return int(self.about["n_layers"])

    def apply(
        self, x: Float[Tensor, "... d"], source: int | str, target: int | str | None = None
    ) -> Float[Tensor, "... d"]:
        """x A (+ b); target: the last state unless given. The last state itself is unchanged."""
        target = self.n_layers if target is None else target
        if x.shape[-1:] != (self.d,):
            raise MapsError(f"states of width {self.d} are mapped, these are {tuple(x.shape)}.")
        if str(source) == str(target):
            return x
        name = self._name((source, target))
        A = self.tensors[f"A.{name}"].to(x.device, x.dtype)
        b = self.tensors.get(f"b.{name}")
        return x @ A if b is None else x @ A + b.to(x.device, x.dtype)

    @property
    def recalled(self) -> tuple[str, ...]:
        """The notes of the fit, for a reader of another text."""
        return tuple(f"When the maps were fitted: {note}" for note in self.about.get("notes") or ())

    def require(self, model: "Model") -> "Maps":
        """These maps, if they are of that very model.

        Raises MapsError for other weights, settings of the config, or tokens.
        """
        mine, theirs = self.about.get("model_hash"), model.checkpoint.fingerprint
        if mine == theirs and "contents" in self.about:  # of which the hash is a sample
            mine, theirs = self.about["contents"], model.checkpoint.contents
        if mine != theirs:
            raise MapsError(
                f"these maps were fitted on {self.about.get('model')} (weights {mine}), not on "
                f"{model.name} (weights {theirs}): fit them again."
            )
        if (self.d, self.n_layers) != (model.d, model.n_layers):
            raise MapsError(f"these maps are {self.d} wide for {self.n_layers} layers.")
        other = difference(self.about.get("config"), model.config)
        tokens = self.about.get("tokenizer_hash")
        if other is None and tokens and tokenizer_hash(model) not in (None, tokens):
            other = "other tokens in its tokenizer"
        if other:
            raise MapsError(
                f"these maps were fitted on {self.about.get('model')} with the same weights, but "
                f"{model.name} has {other}: fit them again."
            )
        return self

    def _name(self, pair: tuple[int | str, int | str]) -> str:
        name = f"{pair[0]}-{pair[1]}"
        if f"A.{name}" not in self.tensors:
            known = ", ".join(f"{p.source} → {p.target}" for p in self.pairs[:6])
            raise MapsError(
                f"no map {pair[0]} → {pair[1]} was fitted; there are {len(self.pairs)}: {known} …"
            )
        return name

    # as a result -------------------------------------------------------------------------
    def rows(self) -> list[dict[str, Any]]:
        """One row a map."""
        return [dict(vars(pair)) for pair in self.pairs]

    def to_dict(self) -> dict[str, Any]:
        """What is recorded, and the list of maps without their matrices."""
        about = {key: value for key, value in self.about.items() if key not in UNSAID}
        return {"about": about, "pairs": self.rows()}

    # on disk -----------------------------------------------------------------------------
    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, matrices in float32 and the record inside; whole or not at
        all. Raises EmbspaceError where it cannot be written."""
        from safetensors.torch import save_file

        if any(f"A.{pair.source}-{pair.target}" not in self.tensors for pair in self.pairs):
            raise MapsError("only some matrices were kept, so these maps are not saved.")
        record = {"format": FORMAT, "means": MEANING, "about": self.about, "pairs": self.rows()}
        said = json.dumps(record)
        tensors = {name: t.float().contiguous() for name, t in self.tensors.items()}
        metadata = {KEY: sealed(said, tensors)}
        with replacing(Path(path)) as temporary:
            save_file(tensors, temporary, metadata=metadata)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, model: "Model | None" = None) -> "Maps":
        """Read a file that `save` wrote; matrices are memory-mapped until used.

        With a model, maps of other weights are refused. Raises MapsError for anything else.
        """
        found = _read(path_of(str(path)))
        return found if model is None else found.require(model)


def _read(path: Path) -> Maps:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise MapsError(f"there is no file of maps {str(path)!r}.")
    try:
        check_safetensors(path)
        file = safe_open(path, framework="pt")
        entry = (file.metadata() or {})[KEY]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        record = json.loads(unsealed(entry, tensors))
        about, pairs = record["about"], tuple(PairFit(**row) for row in record["pairs"])
        _check(record, about, pairs, tensors)
    except MapsError:
        raise
    except KeyError as error:
        raise MapsError(f"{path} is no file of maps that embspace wrote.") from error
    except (ModelError, SafetensorError, OSError, *NO_RECORD) as error:
        raise MapsError(f"{path} cannot be read as maps: {first_line(error)}.") from error
    return Maps(about, pairs, tensors)


def _check(
    record: dict[str, Any], about: Any, pairs: tuple[PairFit, ...], tensors: dict[str, Tensor]
) -> None:
    """Raise ValueError for a record or matrices that do not fit together."""
    if record["format"] != FORMAT:
        raise ValueError(f"format {record['format']!r} is not known, this version reads {FORMAT}")
    if not isinstance(about, dict):
        raise ValueError("its record is no object")
    _check_record(about, pairs)
    d, n_layers = about["d"], about["n_layers"]
    if not all(type(n) is int and n > 0 for n in (d, n_layers)):
        raise ValueError("its record has no sizes")
    names = {f"A.{pair.source}-{pair.target}" for pair in pairs}
    if names != {name for name in tensors if name.startswith("A.")}:
        raise ValueError("its matrices are not those of its record")
    for name, tensor in tensors.items():
        shape = (d, d) if name.startswith("A.") else (d,)
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise ValueError(f"{name[:40]} is {tuple(tensor.shape)}, expected {shape}")
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name[:40]} holds NaN or infinity")


def _check_record(about: dict[str, Any], pairs: tuple[PairFit, ...]) -> None:
    """Raise ValueError for entries of another kind than `save` writes."""
    for name in ("notes", "marks"):
        found = about.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError(f"its {name} are no list of texts")
    if not isinstance(about.get("ridge") or {}, dict):
        raise ValueError("its ridge strengths are no numbers by layer")
    for pair in pairs:
        for name, value in vars(pair).items():
            if not _is_of(name, value):
                raise ValueError(f"{name} of a pair is {str(value)[:40]!r}")


def _is_of(field: str, value: Any) -> bool:
    """Whether a field of a pair holds what it should."""
    if field in PAIR_KINDS:
        return type(value) is PAIR_KINDS[field]
    return value is None or (type(value) in (int, float) and abs(value) < float("inf"))


def tokenizer_hash(model: "Model") -> str | None:
    """16 hex digits of a tokenizer's vocabulary, or None where there is none."""
    tokenizer = model.vocabulary.tokenizer
    if tokenizer is None:
        return None
    table = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=True)
    return hashlib.sha256(table.encode()).hexdigest()[:16]


def too_few(rows: int, d: int) -> tuple[str, ...]:
    """A sentence about fewer rows than coordinates."""
    if rows >= d:
        return ()
    said = f"{rows} rows do not determine maps of width {d}: these are the ones of least norm, "
    return (said + "and how well they fit their own rows says nothing.",)
