"""The work behind `embspace exit` and `embspace alternate`."""

from typing import TYPE_CHECKING, Any

from .followed import Followed
from .opening import Opening
from .output import Output
from .terminal import say
from .texts import Reading

if TYPE_CHECKING:
    from embspace.maps.maps import Maps
    from embspace.text.text import Text
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

    model = reading.run(opening.open())
    if generate is not None:
        from embspace.shorten.generation import require_prompts

        require_prompts(model, [generate], tokens)
    text = reading.read(model)
    found = maps if generate is None else maps_for(model, text, maps)
    with Followed() as bar:
        result = exits(model, found, text, progress=bar, **how)
    if generate is None:
        output.one(result)
    else:
        from embspace.shorten.generation import generate as write

        how = {"max_new_tokens": tokens, "compare_fills": True}
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

    model = reading.run(opening.open())
    for name in schedules:
        parsed(name, model.n_layers)
    text = reading.read(model)
    with Followed() as bar:
        result = alternate(model, maps, text, schedules=schedules or FAMILIES, progress=bar, **how)
    output.one(result, plot)


def maps_for(model: "Model", text: "Text", maps: str | None) -> "Maps":
    """The maps of a file; or of all pairs, fitted on the lines that are not held out.

    Caches of skipped blocks are filled through them.
    """
    from embspace.maps.maps import Maps
    from embspace.shorten.halves import halves

    if maps is not None:
        return Maps.load(maps, model)
    with Followed() as bar:
        return halves(model, text, pairs="all", progress=bar).maps
