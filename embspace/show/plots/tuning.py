"""Which groups carry the task's words after fine-tuning: shares beside chance."""

from pathlib import Path

from ...between.diff_result import Difference
from ..view import model_name
from .figures import COLOURS, drawn

WIDTH = 0.38  # of a bar


def plot_difference(result: Difference, path: str | Path) -> None:
    """Write the share of listed words by group, beside chance; raises EmbspaceError."""
    found = {name: score for name, score in result.words.items() if score is not None}
    base, tuned = (model_name(result.provenance[side]) for side in ("base", "tuned"))
    with drawn(path, max(3.4, 0.75 * len(found) + 1.2), 2.9) as figure:
        axes = figure.subplots()
        at = range(len(found))
        kinds = (("moved rows", "share"), ("tokens at random", "chance"))
        for n, (name, field) in enumerate(kinds):
            heights = [100 * getattr(score, field) for score in found.values()]
            places = [x + (n - 0.5) * WIDTH for x in at]
            hatch = "//" if n else ""  # told apart in grey too
            axes.bar(places, heights, WIDTH, label=name, color=COLOURS[n], hatch=hatch)
        axes.set_xticks(list(at), list(found))
        axes.set_ylabel(f"words of {result.word_list['name']} (% of tokens)")
        axes.set_title(f"{tuned} − {base}", fontsize=9)
        axes.legend(frameon=False, fontsize=8)
