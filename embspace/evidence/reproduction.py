"""What a reproduction found: claim by claim, and step by step."""

from dataclasses import dataclass, field
from typing import Any

from ..results import Result
from .claims import FAILS, HOLDS, TIED, VOID, Verdict


@dataclass(frozen=True)
class Done:
    """A step that was measured (`why_not` empty) or does not apply."""

    name: str
    title: str
    place: str
    why_not: str
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dict."""
        return dict(vars(self))


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
