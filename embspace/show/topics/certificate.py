"""How a certificate looks: one row a claim, and whether it holds."""

from ...live.certificate import Certificate
from ...live.findings import Claim
from ..report import Report, Table, number, report, text
from ..wording import joined, model_name, origin


@report.register
def _(result: Certificate) -> Report:
    columns = (
        text("claim", lambda c: c.what),
        text("largest relative error", _error),
        number("layer", lambda c: c.layer, drop=2),
        text("tolerance", lambda c: f"{c.tolerance:.0e}", "faint", drop=1),
        text("", _verdict, "good" if result.passed else "bad"),
    )
    verdict = "passed" if result.passed else "FAILED"
    void = tuple(f"{claim.what}: {claim.note}." for claim in result.claims if claim.error is None)
    return Report(
        joined(model_name({"model": result.model}), f"certificate {verdict}"),
        joined(
            "our parts against the model's own forward pass, over the largest true value",
            f"{len(result.layers)} of {result.n_layers} layers, seed {result.seed}",
        ),
        (Table.of(result.claims, columns),),
        void + origin(vars(result)),
    )


def _error(claim: Claim) -> str:
    return "does not apply" if claim.error is None else f"{claim.error:.1e}"


def _verdict(claim: Claim) -> str:
    return "" if claim.error is None else "ok" if claim.passed else "fails"
