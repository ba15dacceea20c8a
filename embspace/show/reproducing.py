"""Run the steps of a reproduction, keep each as it is done, judge the claims, write the page."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..cache import alone, write_atomically
from ..errors import EmbspaceError
from ..evidence.claims import decide, read_claims
from ..evidence.reproduction import Done, Reproduction
from ..evidence.steps import Step
from .keeping import Keeper, Kept
from .page import page
from .plots.figures import require_plot

if TYPE_CHECKING:
    from ..maps.fit import Progress
    from ..weights.model import Model

PAGE, JSON, CSV = "index.html", "claims.json", "claims.csv"
OnStep = Callable[[Step, str], None]  # a step, and "kept", "measured" or why it does not apply


def reproduce(
    paper: str,
    steps: Sequence[Step],
    out: str | Path,
    *,
    models: "Mapping[str, Model]",
    quick: bool = False,
    fresh: bool = False,
    progress: "Progress | None" = None,
    on_step: OnStep | None = None,
) -> Reproduction:
    """Measure what was not measured yet, and write claims, tables, figures and page into `out`.

    Every finished step is a folder of `out` that appears whole, with a key of model hashes, texts
    and settings: a run that was interrupted goes on where it was, to the same figures. `fresh`
    measures everything again. A step that the models do not allow is told with its reason.
    Raises EmbspaceError where `out` holds other things, cannot be written or is being written by
    another run, and without matplotlib.
    """
    require_plot("figure.svg")
    with alone(Path(out)):
        return _reproduced(paper, steps, out, models, quick, fresh, progress, on_step)


def _reproduced(
    paper: str,
    steps: Sequence[Step],
    out: str | Path,
    models: "Mapping[str, Model]",
    quick: bool,
    fresh: bool,
    progress: "Progress | None",
    on_step: OnStep | None,
) -> Reproduction:
    keeper = Keeper(Path(out), paper)
    kept: dict[str, Kept] = {}
    done: list[Done] = []
    for step in steps:
        found, why_not = _measured(keeper, step, fresh, progress, on_step)
        if found:
            kept[step.name] = found
        settings = found.measured.get("settings", {}) if found else {}
        done.append(Done(step.name, step.title, step.place, why_not, settings))
    reasons = {step.name: step.why_not for step in done}
    verdicts = tuple(
        decide(
            claim, kept[claim.step].measured if claim.step in kept else None, reasons[claim.step]
        )
        for claim in read_claims(paper)
    )
    provenance = {role: model.provenance for role, model in models.items()}
    result = Reproduction(paper, verdicts, tuple(done), quick, provenance)
    _write(keeper.home, result, kept)
    return result


def _measured(
    keeper: Keeper,
    step: Step,
    fresh: bool,
    progress: "Progress | None",
    on_step: OnStep | None,
) -> tuple[Kept | None, str]:
    """A finished step, from disk or measured now; or None and why there is none."""
    tell = on_step or (lambda step, what: None)
    if step.why_not or step.work is None:
        tell(step, step.why_not)
        return None, step.why_not
    found = None if fresh else keeper.find(step.name, step.key)
    if found:
        tell(step, "kept")
        return found, ""
    try:
        result = step.work(progress)
    except EmbspaceError as error:
        tell(step, str(error))
        return None, str(error)
    found = keeper.keep(step.name, step.key, result)
    tell(step, "measured")
    return found, ""


def _write(home: Path, result: Reproduction, kept: Mapping[str, Kept]) -> None:
    """The page last: where it is, all that it shows is."""
    write_atomically(home / JSON, result.to_json() + "\n")
    write_atomically(home / CSV, result.to_csv())
    write_atomically(home / PAGE, page(result, kept))
