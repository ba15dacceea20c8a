"""The plain numbers by which a config multiplies scores, embeddings, writes and logits."""

from typing import Any

from .weights import Weights


def score_scale(model: Weights, layer: int) -> float:
    """What q · k is multiplied by before the softmax of a block; often 1 / √d_h, never assumed."""
    config = model.config
    chosen = _chosen_score_scale(config)
    if chosen is not None:
        return chosen
    unscaled = model.family.scores_unscaled or not getattr(config, "scale_attn_weights", True)
    scale = 1.0 if unscaled else model.d_head**-0.5
    by_layer = getattr(config, "scale_attn_by_inverse_layer_idx", False)
    return scale / (layer + 1) if by_layer else scale


def score_cap(model: Weights) -> float | None:
    """Soft cap of the attention scores (Gemma 2), or None."""
    if not model.family.caps_scores:
        return None
    return getattr(model.config, "attn_logit_softcapping", None)


def projection_clip(model: Weights) -> float | None:
    """Bound to which queries, keys and values are clipped (MPT, OLMo), or None."""
    config = model.config
    return getattr(config, "clip_qkv", None) or _mpt(config, "clip_qkv")


def embedding_scale(model: Weights) -> float:
    """What embedding rows are multiplied by to become state 0 (Gemma: √d; Granite's own)."""
    if model.family.embedding_scaled:
        return model.d**0.5
    return float(getattr(model.config, "embedding_multiplier", 1.0))


def residual_scale(model: Weights) -> float:
    """What a block's writes are multiplied by before they are added (Granite)."""
    return float(getattr(model.config, "residual_multiplier", 1.0))


def logit_scale(model: Weights) -> float:
    """What logits are multiplied by (Cohere multiplies, Granite divides)."""
    return _logit_scale(model.config) if model.family.scales_logits else 1.0


def logit_cap(model: Weights) -> float | None:
    """Soft cap of the logits, applied once, last (Gemma 2), or None."""
    return _logit_cap(model.config) if model.family.scales_logits else None


def scales_anything(config: Any) -> bool:
    """Whether a config asks for a scale or a cap of the logits."""
    return _logit_scale(config) != 1.0 or _logit_cap(config) is not None


def _logit_scale(config: Any) -> float:
    scale, divisor = (getattr(config, n, None) for n in ("logit_scale", "logits_scaling"))
    return float(scale) if scale else 1.0 / float(divisor or 1.0)


def _logit_cap(config: Any) -> float | None:
    return getattr(config, "final_logit_softcapping", None)


def _chosen_score_scale(config: Any) -> float | None:
    """A scale that the config states itself (Gemma 2/3, Granite, MPT)."""
    scalar = getattr(config, "query_pre_attn_scalar", None)
    if scalar is not None:
        return float(scalar) ** -0.5
    multiplier = getattr(config, "attention_multiplier", None)
    return float(multiplier) if multiplier is not None else _mpt(config, "softmax_scale")


def _mpt(config: Any, name: str) -> float | None:
    return getattr(getattr(config, "attn_config", None), name, None)
