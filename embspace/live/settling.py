"""Readings that only the live model can settle: an unknown architecture's, an uncertain head's."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CannotRunError, CertificateError, ModelError, ResourceError
from ..weights.family import Family
from ..weights.registry import GENERIC
from ..weights.scales import scales_anything
from .checks import DIRECTION, FINAL, LOGITS
from .running import fills_masks

if TYPE_CHECKING:
    from ..weights.model import Model
    from .certificate import Certificate

AnyModel = TypeVar("AnyModel", bound="Model")


def by_shape(read: Callable[[Family], AnyModel], config: Any) -> AnyModel:
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
        refuse_decoding(family, config)
        try:
            model, certificate = _settle(read, family)
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


def refuse_decoding(family: Family, config: Any) -> None:
    """Raise ModelError for an encoder that is set up to predict the next token."""
    if not family.causal and getattr(config, "is_decoder", False):
        raise ModelError(
            f"this {config.model_type} is set up as a decoder (is_decoder), which predicts the "
            "next token; only masked models of that architecture are read."
        )


def is_uncertain(config: Any, outer_type: str) -> bool:
    """Whether a known family may be run otherwise: both ways, or by another model's head.

    `outer_type` is the model type of the whole checkpoint: image-text models have a head of their
    own, which may leave out the text model's scale.
    """
    both_ways = getattr(config, "use_bidirectional_attention", False)
    if both_ways or not getattr(config, "is_causal", True):
        return True
    return outer_type != config.model_type and scales_anything(config)


def settled(read: Callable[[Family], AnyModel], family: Family, config: Any) -> AnyModel:
    """A known family as the live model runs it.

    Where no forward pass is possible, its head is not used. Raises CertificateError where no
    variant of it rebuilds the live model.
    """
    try:
        model, certificate = _settle(read, family)
    except (CannotRunError, ResourceError) as error:
        return read(replace(family, unproved_head=str(error)))
    if certificate.passed:
        return model
    raise CertificateError(
        f"our reading of {model.name} does not rebuild the model's own outputs: "
        f"{certificate.failures[0]}."
    )


def _settle(read: Callable[[Family], AnyModel], family: Family) -> "tuple[AnyModel, Certificate]":
    """The family, or the first variant of it that passes; else the last one that was tried."""
    from .certificate import verdict

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


def _variant(model: "Model", family: Family, certificate: "Certificate") -> Family | None:
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


def _nearest(misfits: list[str], failed: "list[Certificate]") -> str:
    """How far the best fitting of the common shapes came."""
    if failed:
        best = min(failed, key=lambda certificate: len(certificate.failures))
        return f"it does not rebuild its own outputs: {best.failures[0]}"
    found = [reason for reason in misfits if "no token embedding" not in reason]
    if found:
        return f"its parts are not found: {found[0].removesuffix('.')}"
    names = dict.fromkeys(f"{family.base[0]}{family.embedding}.weight" for family in GENERIC)
    return f"its token embedding is not found: looked for {', '.join(names)}"
