"""The measurements of "Jump to Conclusions", as they apply to a model. [DIN]"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..maps.decoding import why_no_head
from ..maps.score import Scores, score
from ..maps.transfer import Transfer, transfer
from ..progress import Progress
from ..shorten.alternation import Alternation, alternate
from ..shorten.early_exit import Exits, exits
from ..shorten.submodules import submodules
from ..text.text import Text
from ..weights.settings import model_key
from .steps import Step

if TYPE_CHECKING:
    from ..weights.model import Model

QUICK_LINES = 1200  # of each text; the paper: 12,000
ROWS = {True: 200, False: 400}  # of sub-modules, by whether it is quick: many passes each
SCHEDULES = ("single", "rr", "r2")  # the paper's; those found by measuring take many more passes


def jump_steps(
    model: "Model", text: Text, other: Text | None, *, quick: bool = False, seed: int = 0
) -> list[Step]:
    """r² and scores by layer, transfer to another text, sub-modules, early exit, alternation."""
    first, second = _cut(text, quick, seed), _cut(other, quick, seed) if other else None
    headless = why_no_head(model) or ""

    def step(name: str, title: str, place: str, work: Any, **more: Any) -> Step:
        decided = {
            "model": model_key(model),
            "dtype": str(model.dtype),
            "text": first.digest,
            "seed": seed,
            **more.pop("settings", {}),
        }
        return Step(name, title, place, work, decided, **more)

    def scored(progress: Progress | None) -> Scores:
        return score(model, None, first, progress=progress)

    def transferred(progress: Progress | None) -> Transfer:
        assert second is not None
        return transfer(model, first, second, progress=progress)

    def left(progress: Progress | None) -> Exits:
        return exits(model, None, first, progress=progress)

    def alternated(progress: Progress | None) -> Alternation:
        return alternate(
            model,
            None,
            first,
            schedules=SCHEDULES,
            rows=ROWS[quick],
            progress=progress,
        )

    lacking = "" if second else "it takes a second text: give --text twice"
    return [
        step("score", "mat and id, layer by layer", "§3–4", scored),
        step(
            "transfer",
            "Maps of one text on another",
            "",
            transferred,
            settings={"other": second.digest if second else None},
            why_not=headless or lacking,
        ),
        step(
            "submodules",
            "Linear sub-modules",
            "",
            lambda progress: submodules(model, first, rows=ROWS[quick], progress=progress),
            settings={"rows": ROWS[quick]},
            why_not=headless,
        ),
        step("exits", "Early exit", "", left, why_not=headless),
        step(
            "alternate",
            "Blocks and jumps in turn",
            "",
            alternated,
            settings={"rows": ROWS[quick], "schedules": SCHEDULES},
            why_not=headless,
        ),
    ]


def _cut(text: Text, quick: bool, seed: int) -> Text:
    return replace(text, lines=text.lines[: QUICK_LINES if quick else None], seed=seed)
