"""Proof on the model in hand: our split of its weights rebuilds its own forward pass."""

import copy
import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ..cache import cache_folder, read_json, write_atomically
from ..checking import indices
from ..checking import seed as checked_seed
from ..errors import CertificateError, EmbspaceError, ModelError
from ..results import Result
from ..weights.model import Model
from .checks import Checker
from .findings import LOGITS, NEEDED, ROWS, Claim
from .running import require_whole, run
from .tape import Tape

DOUBTFUL = 0.01  # errors below are measured again in float64
N_TEXTS = 3
LENGTHS = (7, 11)


@dataclass(frozen=True)
class Certificate(Result):
    """What was compared, how far off it was, and of which weights; `passed` when nothing failed."""

    model: str
    model_hash: str
    revision: str | None
    model_type: str
    dtype: str
    stored_dtype: str
    seed: int
    n_layers: int
    layers: tuple[int, ...]
    claims: tuple[Claim, ...]

    @property
    def passed(self) -> bool:
        """Whether every claim that applies holds."""
        return all(claim.passed for claim in self.claims)

    @property
    def failures(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if not claim.passed)

    def to_dict(self) -> dict[str, Any]:
        """All fields and `passed`; an infinite error (shapes that do not fit) becomes "inf"."""
        return {
            **vars(self),
            "layers": list(self.layers),
            "claims": [claim.to_dict() for claim in self.claims],
            "passed": self.passed,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a claim, with the model it is made of; error and layer are empty where void."""
        of = {"model": self.model, "model_hash": self.model_hash, "seed": self.seed}
        return [claim.to_dict() | of for claim in self.claims]


def check(
    model: Model,
    *,
    seed: int = 0,
    layers: Iterable[int] | Literal["first"] | None = None,
    dtype: torch.dtype | None = None,
) -> Certificate:
    """Compare our parts with the live model's own, block by block, on random texts.

    `layers` limits the check ("first": the first block); the live model then has only the blocks
    up to the last of them. Errors are relative to the largest true value. A small failure in
    float32 is measured again in float64, to tell rounding from error.
    Raises ModelError where transformers cannot run the model, ResourceError where it won't fit.
    """
    chosen, seed = _chosen_layers(model, layers), checked_seed(seed)
    certificate = _measure(model, seed, chosen, dtype or model.dtype)
    doubtful = all(c.error is not None and c.error < DOUBTFUL for c in certificate.failures)
    if dtype is None and not certificate.passed and doubtful:
        return _measure(model, seed, chosen, torch.float64)
    return certificate


certify = check  # its name before the command's


def require(model: Model) -> None:
    """Check a model at first use; remembered by the hash of its weights and config.

    Raises CertificateError naming the first failing claim, with its numbers; ModelError naming a
    tensor that holds NaN or infinity.
    """
    certificate = verdict(model)
    if not certificate.passed:
        raise refusal(model, certificate)
    model.proof_due = False


def refusal(model: Model, certificate: Certificate) -> EmbspaceError:
    """Why a model is not read: the first claim that fails, or a weight that is no number."""
    if any(c.error == math.inf for c in certificate.failures):
        name = model.checkpoint.not_finite()
        if name is not None:
            return ModelError(f"{model.name} cannot be read: {name} holds NaN or infinity.")
    return CertificateError(
        f"our reading of {model.name} does not rebuild the model's own outputs: "
        f"{certificate.failures[0]}."
    )


def verdict(model: Model) -> Certificate:
    """The cheap certificate: the first block; every block where only the shape is known.

    One that passed is remembered in the user's cache and not measured again.
    """
    path = cache_folder("certificates") / f"{_key(model)}.json"
    known = _recall(path)
    if known is not None:
        return known
    require_whole(model)
    certificate = check(model, layers="first")
    if certificate.passed and model.family.generic and model.n_layers > 1:
        certificate = check(model)
    if certificate.passed:
        _remember(path, certificate)
    return certificate


def _recall(path: Path) -> Certificate | None:
    """A remembered certificate that passed, or None where there is none or it is damaged."""
    data: Any = read_json(path)
    try:
        claims = tuple(Claim(**claim) for claim in data["claims"])
        fields = {k: v for k, v in data.items() if k not in ("passed", "claims", "layers")}
        found = Certificate(**fields, layers=tuple(data["layers"]), claims=claims)
    except (TypeError, KeyError):
        return None
    return found if found.passed else None


def _remember(path: Path, certificate: Certificate) -> None:
    try:
        write_atomically(path, certificate.to_json(indent=1) + "\n", make_folder=True)
    except EmbspaceError:  # a read-only cache costs the next run a few seconds, nothing else
        return


def _key(model: Model) -> str:
    """What a certificate is valid for: weights, config, reading, and the version that made it."""
    from ..version import __version__

    reading = f"{model.config.to_json_string(use_diff=False)}|{_plain(model)}|{ROWS}"
    digest = hashlib.sha256(reading.encode()).hexdigest()[:12]
    return f"{model.checkpoint.fingerprint}-{digest}-{__version__}"


def _plain(model: Model) -> dict[str, Any]:
    return {k: v for k, v in vars(model.family).items() if not callable(v)}


def _chosen_layers(model: Model, layers: Iterable[int] | str | None) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(model.n_layers))
    if isinstance(layers, str):
        if layers != "first":
            raise ModelError(f'layers={layers!r}: give "first", layer numbers, or nothing for all.')
        return (0,)
    chosen = tuple(sorted(set(indices(layers, model.n_layers, "layer", error=ModelError))))
    if not chosen:
        raise ModelError("no layers were given to check.")
    return chosen


def _measure(model: Model, seed: int, layers: tuple[int, ...], dtype: torch.dtype) -> Certificate:
    ours = _in_dtype(model, dtype)
    checker = Checker(ours, set(layers))
    running = run(ours, n_layers=max(layers) + 1)
    tape = checker.tape = Tape(running, checker.block)
    for ids in texts(model, seed):
        output = tape.forward(ids)
        checker.embedding(ids)
        checker.logits(output)
        checker.final(output)
        checker.plain(ids)
    needed = {*NEEDED, *((LOGITS,) if model.has_head else ())}
    claims = tuple(checker.findings.claim(what, needed=what in needed) for what in ROWS)
    record = ours.provenance
    return Certificate(
        model=record["model"],
        model_hash=record["model_hash"],
        revision=record["revision"],
        model_type=model.config.model_type,
        dtype=record["dtype"],
        stored_dtype=record["stored_dtype"],
        seed=seed,
        n_layers=model.n_layers,
        layers=layers,
        claims=claims,
    )


def _in_dtype(model: Model, dtype: torch.dtype) -> Model:
    """The same model, computing in another dtype."""
    twin = copy.copy(model)
    twin.dtype, twin.proof_due = dtype, False
    for name in ("provenance", "head_bias"):
        vars(twin).pop(name, None)
    return twin


def _special_ids(config: Any) -> set[int]:
    """Ids that a config gives a role (padding, images …): a forward pass may treat them apart."""
    named = [v for k, v in vars(config).items() if k.endswith(("token_id", "token_index"))]
    lists = [v if isinstance(v, list) else [v] for v in named]
    return {i for ids in lists for i in ids if isinstance(i, int)}


def texts(model: Model, seed: int) -> Iterator[Tensor]:
    """Batches of random token ids of a few lengths; no padding and no placeholder tokens."""
    config = model.config
    random = torch.Generator().manual_seed(seed)
    n_rows = min(config.vocab_size, model.checkpoint.shape(f"{model.embedding_path}.weight")[0])
    special = _special_ids(config)
    allowed = torch.tensor([i for i in range(n_rows) if i not in special])
    longest = model.n_positions or max(LENGTHS)
    taken = {model.n_heads, model.n_kv_heads}  # a length must not look like a number of heads
    for length in LENGTHS:
        length = min(length, longest)
        while length in taken and length > 2:
            length -= 1
        at = torch.randint(len(allowed), (N_TEXTS, length), generator=random)
        yield allowed[at].to(model.device)
