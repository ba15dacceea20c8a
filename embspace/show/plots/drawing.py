"""The figure of any result that has one."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

# Result -> (file in this folder, function) that draws it.
DRAWN_BY: dict[str, tuple[str, str]] = {
    "Alignment": ("alignment", "plot_alignment"),
    "Alternation": ("exits", "plot_alternation"),
    "Concept": ("evidence", "plot_evidence"),
    "Difference": ("tuning", "plot_difference"),
    "Exits": ("exits", "plot_exits"),
    "InverseCheck": ("evidence", "plot_evidence"),
    "Lens": ("lens", "plot_lens"),
    "LensComparison": ("lens", "plot_lenses"),
    "PairSimilarity": ("evidence", "plot_evidence"),
    "Scores": ("maps", "plot_scores"),
    "StateAlignment": ("alignment", "plot_state_alignment"),
    "StateOverlap": ("evidence", "plot_evidence"),
    "Stitching": ("stitching", "plot_stitching"),
    "SubmoduleScores": ("shortcuts", "plot_submodules"),
    "Transfer": ("shortcuts", "plot_transfer"),
    "Trust": ("evidence", "plot_evidence"),
}


def figure_of(result: Any) -> Callable[[Any, str | Path], None] | None:
    """The function that writes a result's figure to a path; None where it has no figure."""
    found = DRAWN_BY.get(type(result).__name__)
    if found is None:
        return None
    return getattr(import_module(f".{found[0]}", __package__), found[1])
