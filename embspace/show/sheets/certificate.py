"""How a certificate looks: one row a claim, and whether it holds."""

from ...live.certificate import Certificate, Claim
from ..view import Column, Sheet, View, joined, model_name, origin
from ..views import sheet


@sheet.register
def _(result: Certificate) -> Sheet:
    columns = (
        Column("claim", "text"),
        Column("largest relative error", "text"),
        Column("layer", "number", drop=2),
        Column("tolerance", "text", "faint", drop=1),
        Column("", "text", "good" if result.passed else "bad"),
    )
    rows = tuple(
        (c.what, _error(c), c.layer, f"{c.tolerance:.0e}", _verdict(c)) for c in result.claims
    )
    verdict = "passed" if result.passed else "FAILED"
    title = joined(model_name({"model": result.model}), f"certificate {verdict}")
    layers = f"{len(result.layers)} of {result.n_layers} layers, seed {result.seed}"
    about = joined(
        "our parts against the model's own forward pass, over the largest true value", layers
    )
    void = tuple(f"{claim.what}: {claim.note}." for claim in result.claims if claim.error is None)
    return Sheet(title, about, (View(columns, rows),), void + origin(vars(result)))


def _error(claim: Claim) -> str:
    return "does not apply" if claim.error is None else f"{claim.error:.1e}"


def _verdict(claim: Claim) -> str:
    return "" if claim.error is None else "ok" if claim.passed else "fails"
