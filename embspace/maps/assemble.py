"""From the sums of a fit to Maps: every map solved, scored on held-out rows, and recorded."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from ..live.capture import States
from ..progress import Progress
from ..text.passages import Passages
from ..text.splits import Split
from ..text.text import Text
from ..weights.settings import settings_of
from .maps import Maps, PairFit, tokenizer_hash, too_few
from .solve import R2, Kind, Solution, r2_of, r2_of_identity, solve
from .sums import Plan, Products, Sums

if TYPE_CHECKING:
    from ..weights.model import Model

RIDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
OUTLYING = 10.0  # times the median norm of a layer
MOST_MARKS = 200_000  # fitted lines that are remembered one by one


class Summed(Protocol):
    """What a fit knows once its sums are complete; sets of rows are "fit", "score" and "choice"."""

    @property
    def model(self) -> "Model": ...
    @property
    def text(self) -> Text: ...
    @property
    def lines(self) -> Split: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def products(self) -> Products: ...
    @property
    def sets(self) -> Mapping[str, Passages]: ...
    @property
    def sums(self) -> Mapping[str, Sums]: ...
    @property
    def done(self) -> Mapping[str, int]: ...
    @property
    def checks(self) -> Sequence[Any]: ...


def assemble(
    work: Summed, ridge: float | None, keep: str = "all", progress: Progress | None = None
) -> Maps:
    """Solve every map of a fit whose sums are complete; `ridge`: its strength, or None."""
    final = str(work.model.n_layers)
    sums, choice = work.sums["fit"], work.sums.get("choice")
    strengths = _strengths(work, ridge)
    if choice is not None:
        sums.merge(choice)
    pairs: list[PairFit] = []
    tensors: dict[str, Tensor] = {}
    for n, (source, targets) in enumerate(work.plan.targets.items()):
        if progress:
            progress("solve", n, len(work.plan.targets))
        solution = solve(sums, source, kind=work.kind, ridge=strengths.get(source, 0.0))
        scores = _scores(work.sums.get("score"), source, solution)
        for k, target in enumerate(targets):
            columns = slice(k * sums.d, (k + 1) * sums.d)
            if keep == "all" or target == final:
                tensors[f"A.{source}-{target}"] = solution.A[:, columns].float().cpu()
                if solution.b is not None:
                    tensors[f"b.{source}-{target}"] = solution.b[columns].float().cpu()
            pairs.append(_pair_fit(source, target, solution, scores.get(target)))
    return Maps(_about(work, strengths), tuple(pairs), tensors)


def _strengths(work: Summed, ridge: float | None) -> dict[str, float]:
    if work.kind != "ridge":
        return {}
    if ridge is not None:
        return dict.fromkeys(work.plan.targets, ridge)
    fitted, choice = work.sums["fit"], work.sums["choice"]
    return {source: chosen_ridge(fitted, choice, source) for source in work.plan.targets}


def chosen_ridge(sums: Sums, choice: Sums, source: str) -> float:
    """The strength whose maps score best on rows kept apart for the choice."""

    def score(strength: float) -> float:
        found = r2_of(choice, source, solve(sums, source, kind="ridge", ridge=strength))
        return sum(each.mean for each in found.values()) / len(found)

    return max(RIDGES, key=score)


def _scores(held: Sums | None, source: str, solution: Solution) -> dict[str, tuple[R2, R2]]:
    if held is None:
        return {}
    mine, identity = r2_of(held, source, solution), r2_of_identity(held, source)
    return {target: (mine[target], identity[target]) for target in mine}


def _pair_fit(
    source: str, target: str, solution: Solution, scores: tuple[R2, R2] | None
) -> PairFit:
    mine, identity = scores or (None, None)
    return PairFit(
        source=source,
        target=target,
        r2=_number(mine.mean) if mine else None,
        r2_median=_number(mine.median) if mine else None,
        r2_pooled=_number(mine.pooled) if mine else None,
        r2_id=_number(identity.mean) if identity else None,
        n_constant=mine.n_constant if mine else 0,
        rank=solution.rank,
        condition=_number(solution.condition),
        cut=solution.cut,
    )


def _number(value: float) -> float | None:
    """A number that JSON knows."""
    return value if abs(value) < float("inf") else None


def _about(work: Summed, strengths: dict[str, float]) -> dict[str, Any]:
    from ..version import __version__

    model, fitted, sums = work.model, work.sets["fit"], work.sums
    few = too_few(sums["fit"].n, model.d)
    marked = work.lines.fit if len(work.lines.fit) <= MOST_MARKS else ()
    return model.provenance | {
        "kind": work.kind,
        "d": model.d,
        "n_layers": model.n_layers,
        "tokenizer_hash": tokenizer_hash(model),
        "n_lines": len(work.text),
        "rows": sums["fit"].n,
        "rows_scored": sums["score"].n if "score" in sums else 0,
        "rows_outlying": work.done.get("outlying", 0),
        **fitted.settings,
        **model.run_settings.record,
        "products": work.products,
        "ridge": strengths or None,
        "checks": [dict(vars(check)) for check in work.checks],
        "notes": [*work.lines.notes, *fitted.notes(), *few],
        "marks": work.text.marks(marked),
        "config": settings_of(model.config),
        "contents": model.checkpoint.contents,
        "embspace": __version__,
    }


def outlying(states: States) -> int:
    """Rows whose norm is over ten times the median of their layer, in some layer after the first.

    A few such rows (first tokens, sinks) can carry a pooled score alone; see `R2`.
    """
    layers = [x for l, x in states.layers.items() if l]
    if not layers:
        return 0
    norms = [x.norm(dim=1) for x in layers]
    return int(sum((n > OUTLYING * n.median()).int() for n in norms).gt(0).sum())  # type: ignore[union-attr]
