"""Opening a model: its weights under a family's names, proved where names alone do not tell."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from ..errors import CannotRunError, ModelError, ResourceError
from ..weights.config import raw_config, read_config, refuse_other_weights
from ..weights.family import Family
from ..weights.registry import BY_TYPE, GENERIC
from ..weights.run_settings import AS_USUAL, RunSettings
from ..weights.scales import scales_anything
from ..weights.shapes import fitting_layout
from ..weights.source import Source, find_source
from ..weights.tensors import Checkpoint
from .certificate import Certificate, refusal, verdict
from .findings import DIRECTION, FINAL, LOGITS
from .proved import ProvedModel
from .running import fills_masks

AnyModel = TypeVar("AnyModel", bound=ProvedModel)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def open_model(
    name: str | Path | Source,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    family: Family | None = None,
    run: RunSettings = AS_USUAL,
    check: bool = True,
    kind: type[AnyModel] = ProvedModel,
) -> AnyModel:
    """The weights of a model, opened lazily; no torch module is built and nothing is computed.

    The first number asked for proves the reading: no tensor is missing or unused, and the first
    block rebuilds the live model's own numbers. A proof is kept in the user's cache. An
    architecture that no family entry knows is read by its shape, and only once its certificate
    passes. Local input opens no connection.

    Args:
        name: A local folder, a `.gguf` file, a bundled sample, an alias (`bert-seed0` …) or a Hub
            name; or where they lie, found before.
        revision: A branch, tag or commit of the Hub.
        dtype: Of the arithmetic, float32 or float64, whatever the file stores.
        device: cpu, cuda or cuda:N.
        trust_remote_code: Whether code that lies beside the weights may run: of the config, the
            tokenizer and the live model.
        family: Where the parts lie, given by hand for an architecture that is not known.
        run: How forward passes are run: dtype, batch, device map.
        check: Whether to prove the reading; False reads without proof.
        kind: The class of the model that is made.

    Raises:
        ModelError: The files are missing, damaged, packed, or of a shape that is not known.
        CertificateError: No known reading rebuilds the model's own outputs.
    """
    if family is not None and not isinstance(family, Family):
        raise ModelError(f"family must be a Family, not {str(family)[:80]!r}.")
    source = name if isinstance(name, Source) else find_source(str(name), revision)
    name = str(source.folder if isinstance(name, Source) else name)
    if revision is not None and not source.has_revisions:
        raise ModelError(f"{name} is no Hub name, so it has no revision {str(revision)[:80]!r}.")
    folder = source.folder
    config = read_config(folder, trust_remote_code=trust_remote_code)
    source.fetch_weights()  # gigabytes perhaps, and only of a model whose config can be read
    checkpoint = Checkpoint(folder)
    refuse_other_weights(folder)
    options: dict[str, Any] = {
        "dtype": _dtype(dtype),
        "device": _device(device),
        "revision": revision,
        "notes": source.notes,
        "stored_as": source.stored_as,
        "run_settings": run,
        "check": check,
        "trust_remote_code": trust_remote_code,
    }

    def read(entry: Family) -> AnyModel:
        layout = fitting_layout(entry, config, checkpoint)
        return kind(name, config, layout, checkpoint, **options)

    known = family or BY_TYPE.get(config.model_type)
    if known is None:
        return _by_shape(read, config)
    _refuse_decoding(known, config)
    if check and family is None and _is_uncertain(config, raw_config(folder)["model_type"]):
        return _read_as_run(read, known, config)
    return read(known)


def _by_shape(read: Callable[[Family], AnyModel], config: Any) -> AnyModel:
    """Read an unknown architecture by the first common shape whose certificate passes.

    Raises ModelError that says how far the best of them came.
    """
    misfits: list[str] = []
    failed: list[Certificate] = []
    for family in GENERIC:
        try:
            read(family)
        except ModelError as error:
            misfits.append(str(error))
            continue
        _refuse_decoding(family, config)
        try:
            model, certificate = _first_that_passes(read, family)
        except ModelError as error:
            misfits.append(str(error))
            continue
        if certificate.passed:
            return model
        failed.append(certificate)
    raise ModelError(
        f"no family entry knows {config.model_type!r}, and read by the common shapes "
        f"{_nearest(misfits, failed)}. Give the paths by hand: load(…, family=Family(…))."
    )


def _refuse_decoding(family: Family, config: Any) -> None:
    """Raise ModelError for an encoder that is set up to predict the next token."""
    if not family.causal and getattr(config, "is_decoder", False):
        raise ModelError(
            f"this {config.model_type} is set up as a decoder (is_decoder), which predicts the "
            "next token; only masked models of that architecture are read."
        )


def _is_uncertain(config: Any, outer_type: str) -> bool:
    """Whether a known family may be run otherwise: both ways, or by another model's head.

    `outer_type` is the model type of the whole checkpoint: image-text models have a head of their
    own, which may leave out the text model's scale.
    """
    both_ways = getattr(config, "use_bidirectional_attention", False)
    if both_ways or not getattr(config, "is_causal", True):
        return True
    return outer_type != config.model_type and scales_anything(config)


def _read_as_run(read: Callable[[Family], AnyModel], family: Family, config: Any) -> AnyModel:
    """A known family as the live model runs it.

    Where no forward pass is possible, its head is not used. Raises CertificateError where no
    variant of it rebuilds the live model.
    """
    try:
        model, certificate = _first_that_passes(read, family)
    except (CannotRunError, ResourceError) as error:
        return read(replace(family, unproved_head=str(error)))
    if certificate.passed:
        return model
    raise refusal(model, certificate)


def _first_that_passes(
    read: Callable[[Family], AnyModel], family: Family
) -> tuple[AnyModel, Certificate]:
    """The family, or the first variant of it that passes; else the last one that was tried."""
    tried: list[Family] = []
    while True:
        tried.append(family)
        model = read(family)
        certificate = verdict(model)
        if certificate.passed:
            model.proof_due = False
            return model, certificate
        other = _variant(model, family, certificate)
        if other is None or other in tried:
            return model, certificate
        family = other


def _variant(model: ProvedModel, family: Family, certificate: Certificate) -> Family | None:
    """Another reading of the same tensors, for which what failed speaks; None where none does."""
    failed = {claim.what: claim for claim in certificate.failures}
    if DIRECTION in failed and family.causal:
        if fills_masks(model):
            return replace(family, causal=False)
        return replace(family, both_ways=not family.both_ways)
    if LOGITS in failed and failed.keys() <= {LOGITS, FINAL}:
        if failed[LOGITS].error is None:
            return replace(family, unproved_head=failed[LOGITS].note)
        return replace(family, scales_logits=not family.scales_logits)
    return None


def _nearest(misfits: list[str], failed: list[Certificate]) -> str:
    """How far the best fitting of the common shapes came."""
    if failed:
        best = min(failed, key=lambda certificate: len(certificate.failures))
        return f"it does not rebuild its own outputs: {best.failures[0]}"
    found = [reason for reason in misfits if "no token embedding" not in reason]
    if found:
        return f"its parts are not found: {found[0].removesuffix('.')}"
    names = dict.fromkeys(f"{family.base[0]}{family.embedding}.weight" for family in GENERIC)
    return f"its token embedding is not found: looked for {', '.join(names)}"


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
