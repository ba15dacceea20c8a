"""The work behind `embspace exit` and `embspace alternate`."""

from typing import TYPE_CHECKING, Any

from .followed import Followed
from .opening import Opening
from .output import Output
from .terminal import say
from .texts import Reading

if TYPE_CHECKING:
    from embspace.maps.maps import Maps
    from embspace.text.corpus import Corpus
    from embspace.weights.model import Model


def leave_early(
    opening: Opening,
    output: Output,
    reading: Reading,
    *,
    generate: str | None,
    tokens: int,
    maps: str | None,
    plot: str | None,
    **how: Any,
) -> None:
    """Count early exits and draw them; or generate text with the exit that was chosen."""
    from embspace.shorten.early_exit import exits

    model = opening.open()
    if generate is not None:
        from embspace.shorten.generation import require_prompts

        require_prompts(model, [generate], tokens)
    corpus = reading.corpus(model)
    found = maps if generate is None else maps_for(model, corpus, maps, reading)
    with Followed() as bar:
        result = exits(model, found, corpus, progress=bar, **how, **run_of(reading, corpus))
    if generate is None:
        output.one(result)
    else:
        from embspace.shorten.generation import generate as write

        how = {"max_new_tokens": tokens, "compare_fills": True, "run_dtype": reading.run_dtype}
        output.one(write(model, found, generate, exit=result, **how))
    if plot:
        from embspace.show import plot as draw

        draw(result, plot)
        say(f"wrote {plot}")


def alternate_blocks(
    opening: Opening,
    output: Output,
    reading: Reading,
    *,
    maps: str | None,
    plot: str | None,
    schedules: tuple[str, ...],
    **how: Any,
) -> None:
    """Measure schedules, show and draw them."""
    from embspace.shorten.alternation import alternate
    from embspace.shorten.schedules import FAMILIES, parsed

    model = opening.open()
    for name in schedules:
        parsed(name, model.n_layers)
    corpus = reading.corpus(model)
    with Followed() as bar:
        result = alternate(
            model,
            maps,
            corpus,
            schedules=schedules or FAMILIES,
            progress=bar,
            **how,
            **run_of(reading, corpus),
        )
    output.one(result, plot)


def run_of(reading: Reading, corpus: "Corpus") -> dict[str, Any]:
    """Held-out lines, positions and dtype of the run."""
    how = {"lines": reading.lines(corpus), "run_dtype": reading.run_dtype}
    return how | reading.taking(corpus)


def maps_for(model: "Model", corpus: "Corpus", maps: str | None, reading: Reading) -> "Maps":
    """The maps of a file; or of all pairs, fitted on the lines that are not held out.

    Caches of skipped blocks are filled through them.
    """
    from embspace.maps.maps import Maps
    from embspace.shorten.halves import halves

    if maps is not None:
        return Maps.load(maps, model)
    with Followed() as bar:
        how = {"lines": reading.lines(corpus), **reading.taking(corpus)}
        return halves(model, corpus, pairs="all", progress=bar, **how).maps
