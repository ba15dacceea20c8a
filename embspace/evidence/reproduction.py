"""A paper reproduced: run its steps, keep each as it is done, judge the claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..cache import alone, write_atomically
from ..errors import EmbspaceError
from ..progress import Progress
from ..results import Record, Result
from ..weights.model import Model
from .claims import FAILS, HOLDS, TIED, VOID, Verdict, decide
from .embedding_claims import CLAIMS as EMBEDDING
from .jump_claims import CLAIMS as JUMP
from .kept_steps import Keeper, Kept
from .steps import Step

CLAIMS = {"jump": JUMP, "embedding": EMBEDDING}  # of each paper, in the order of its sections
PAGE, JSON, CSV = "index.html", "claims.json", "claims.csv"
OnStep = Callable[[Step, str], None]  # a step, and "kept", "measured" or why it does not apply


@dataclass(frozen=True)
class Done(Record):
    """A step that was measured (`why_not` empty) or does not apply."""

    name: str
    title: str
    place: str
    why_not: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Reproduction(Result):
    """A paper's claims beside what was measured here, and the steps that measured it.

    paper: "jump" or "embedding"; models: role -> provenance; quick: few rows, said so everywhere.
    """

    paper: str
    verdicts: tuple[Verdict, ...]
    steps: tuple[Done, ...]
    quick: bool
    models: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def count(self) -> dict[str, int]:
        """How many claims have each verdict."""
        found = [v.verdict for v in self.verdicts]
        return {name: found.count(name) for name in (HOLDS, FAILS, TIED, VOID)}

    def to_dict(self) -> dict[str, Any]:
        """Every claim with its verdict, every step, the models."""
        return {
            "paper": self.paper,
            "quick": self.quick,
            "count": self.count(),
            "claims": [verdict.to_dict() for verdict in self.verdicts],
            "steps": [step.to_dict() for step in self.steps],
            "models": self.models,
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a claim."""
        return [
            {
                "claim": v.claim.id,
                "section": v.claim.section,
                "figure": v.claim.figure,
                "says": v.claim.says,
                "paper": v.claim.number,
                "ours": v.ours,
                "verdict": v.verdict,
                "intervals_overlap": v.close,
                "reason": v.reason,
                "rule": v.claim.rule,
            }
            for v in self.verdicts
        ]


class Looks(Protocol):
    """How a reproduction writes what people look at: `embspace.show.LOOKS`, or your own."""

    def require(self) -> None:
        """Raise EmbspaceError, before any work, where figures cannot be drawn."""

    def draw(self, result: Result, folder: Path) -> None:
        """Write the table and the figures of a step's result into its folder."""

    def page(self, result: Reproduction, kept: Mapping[str, Kept]) -> str:
        """The page of all claims and steps, as HTML."""
        ...


def reproduce(
    paper: str,
    steps: Sequence[Step],
    out: str | Path,
    *,
    models: Mapping[str, Model],
    looks: Looks,
    quick: bool = False,
    fresh: bool = False,
    progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> Reproduction:
    """Measure what was not measured yet, and write claims, tables, figures and page into a folder.

    Every finished step is a folder of `out` that appears whole, with a key of model hashes, texts
    and settings: a run that was interrupted goes on where it was, to the same figures.

    Args:
        paper: "jump" or "embedding".
        steps: What to measure, from `jump_steps` or `embedding_steps`.
        out: The folder, made where it is not there.
        models: The models by the parts they play; their provenance is recorded.
        looks: How tables, figures and the page are drawn: `embspace.show.LOOKS`.
        quick: Whether the steps are small ones, which the page says.
        fresh: Measure everything again.
        progress: Told how far a step is.
        on_step: Told of every step that it was kept or measured, or why it does not apply.

    Returns:
        The verdict of every claim, and the steps.

    Raises:
        EmbspaceError: `out` holds other things, cannot be written or is being written by another
            run; or figures cannot be drawn.
    """
    looks.require()
    tell = on_step or (lambda step, what: None)
    with alone(Path(out)):
        keeper = Keeper(Path(out), paper)
        kept: dict[str, Kept] = {}
        done: list[Done] = []
        for step in steps:
            found, said = _measured(keeper, step, looks, fresh, progress)
            tell(step, said)
            if found:
                kept[step.name] = found
            settings = found.measured.get("settings", {}) if found else {}
            done.append(Done(step.name, step.title, step.place, "" if found else said, settings))
        measured = {name: step.measured for name, step in kept.items()}
        reasons = {step.name: step.why_not for step in done}
        verdicts = tuple(
            decide(claim, measured.get(claim.step), reasons[claim.step]) for claim in CLAIMS[paper]
        )
        provenance = {role: model.provenance for role, model in models.items()}
        result = Reproduction(paper, verdicts, tuple(done), quick, provenance)
        write_atomically(keeper.home / JSON, result.to_json() + "\n")
        write_atomically(keeper.home / CSV, result.to_csv())
        # The page last: where it is, all that it shows is.
        write_atomically(keeper.home / PAGE, looks.page(result, kept))
    return result


def _measured(
    keeper: Keeper, step: Step, looks: Looks, fresh: bool, progress: Progress | None
) -> tuple[Kept | None, str]:
    """A finished step, "kept" from before or "measured" now; or None and why there is none."""
    if step.why_not or step.work is None:
        return None, step.why_not
    found = None if fresh else keeper.find(step.name, step.key)
    if found:
        return found, "kept"
    try:
        result = step.work(progress)
    except EmbspaceError as error:
        return None, str(error)
    return keeper.keep(step.name, step.key, result, looks.draw), "measured"
