"""Which vectors lie nearest to a topic's words, beside random topics."""

from pathlib import Path

from ...evidence.concepts import Concept
from ..figures import COLOURS, DASHES, PANEL, drawn, legend, look
from ..report import Report, Table, number, of_model, plot, report, text, token
from ..wording import clipped, settings_line, shown

MOSTLY_COMMON = 0.3  # cosine from which the mean of all tokens is worth a word


@report.register
def _(result: Concept) -> Report:
    words = " ".join(map(shown, result.words))
    about = (
        "cosine with the mean embedding of " + " ".join(result.tokens),
        f"p: random topics of as many words ({result.settings.get('draws')}) at least as near to "
        "this vector",
        "p best: to any vector of its part",
        settings_line(result.settings),
    )
    tables = [_nearest(result, part) for part in result.n_vectors]
    return of_model(result, f"vectors nearest to: {words}", about, tables, _common(result))


def _common(result: Concept) -> tuple[str, ...]:
    """A topic that is mostly what all tokens share says little of its own."""
    if result.settings.get("centred"):
        return (f"The mean of all tokens (cosine {result.common:.2f}) is taken from every topic.",)
    if result.common < MOSTLY_COMMON:
        return ()
    return (
        f"The topic's cosine with the mean of all tokens is {result.common:.2f}: vectors near that "
        "mean are near every topic. --centred takes it away.",
    )


def _nearest(result: Concept, part: str) -> Table:
    tone = "key" if part in ("key", "gate", "up") else "value"
    columns = (
        text("cosine", lambda v: f"{v.cosine:.3f}"),
        text("p", lambda v: f"{v.p:.3f}", "faint", drop=1),
        text("p best", lambda v: f"{v.p_best:.3f}"),
        number("layer", lambda v: v.layer),
        text("vector", lambda v: v.where),
        token("tokens", lambda v: " ".join(one.label for one in v.top), tone),
    )
    mean, high = result.best_random[part]
    title = (
        f"{part}: {result.n_vectors[part]} vectors; random topics' nearest {mean:.3f}, "
        f"95 % of them below {high:.3f}"
    )
    return Table.of(result.of_part(part), columns, title)


@plot.register
def _(result: Concept, path: str | Path) -> None:
    """Cosines by rank beside those of random topics, a panel a part."""
    parts = list(result.n_vectors)
    with drawn(path, PANEL * len(parts), 2.4) as figure:
        panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
        for axes, part in zip(panels, parts, strict=True):
            cosines = [vector.cosine for vector in result.of_part(part)]
            axes.plot(range(1, len(cosines) + 1), cosines, label="this topic", **look(0))
            mean, high = result.best_random[part]
            for n, (name, level) in enumerate((("random: mean", mean), ("random: 95 %", high))):
                colour, dash = COLOURS[n + 1], DASHES[n + 1]
                axes.axhline(level, color=colour, linestyle=dash, label=f"nearest to {name}")
            axes.set_title(part)
            axes.set_xlabel("rank of the vector")
        panels[0].set_ylabel("cosine with the topic")
        legend(panels[0], 7)
        figure.suptitle(clipped(" ".join(result.words), 60), fontsize=9)
