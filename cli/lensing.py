"""The work behind `embspace lens`."""

from pathlib import Path
from typing import Any

import click

from .followed import Followed
from .opening import Opening
from .output import Output
from .terminal import say

OF_PROMPT = {
    "prompt": "PROMPT",
    "positions": "--positions",
    "top": "--top",
    "track": "--track",
    "generate": "--generate",
    "inside": "--inside",
    "html": "--html",
}


def look_at_prompt(
    opening: Opening,
    output: Output,
    *,
    prompt: str | None,
    maps: tuple[str, ...],
    top: int | None,
    no_special: bool,
    rows: int | None,
    column: str | None,
    text: str | None,
    seed: int,
    html: str | None,
    plot: str | None,
    **how: Any,
) -> None:
    """Grids of a prompt; files of them where asked for."""
    from embspace.cache import write_atomically
    from embspace.maps.lens import TOP, lens
    from embspace.text.text import Text
    from embspace.weights.aliases import bundled

    if how["generate"] and (how["positions"] is not None or how["inside"]):
        raise click.UsageError("--generate takes none of --positions and --inside.")
    page = None if html is None else _page(html)
    model = opening.open()
    read = None
    if text is not None:
        read = Text.read(text, column=column, seed=seed)
    elif seed and bundled(model.name) is not None:
        read = Text.read(Text.of(None, model), seed=seed)
    with Followed() as bar:
        result: Any = lens(
            model,
            prompt,
            maps or None,
            k=top or TOP,
            generate=how.pop("generate") or 0,
            special=not no_special,
            progress=bar,
            text=read,
            rows=rows,
            **how,
        )
    output.one(result)
    if page:
        from embspace.show.topics.lens import lens_page

        write_atomically(page, lens_page(result))
        say(f"wrote {page}")
    if plot:
        from embspace.show import plot as draw

        draw(result, plot)
        say(f"wrote {plot}")


def compare_on_text(
    opening: Opening,
    output: Output,
    *,
    maps: tuple[str, ...],
    layers: list[int] | None,
    text: str | None,
    column: str | None,
    rows: int | None,
    seed: int,
    no_special: bool,
    plot: str | None,
    **of_prompt: Any,
) -> None:
    """Lenses on the same held-out positions."""
    from embspace.maps.lens_comparison import DEFAULT, compare_lenses
    from embspace.text.text import Text

    wrong = [OF_PROMPT[name] for name, value in of_prompt.items() if value]
    if wrong:
        raise click.UsageError(f"--compare takes no {' and no '.join(wrong)}.")
    model = opening.open()
    read = Text.of(None, model) if text is None else Text.read(text, column=column)
    read = Text.read(read, seed=seed, special=not no_special)
    with Followed() as bar:
        result = compare_lenses(
            model,
            maps or DEFAULT,
            read,
            layers=layers,
            rows=rows,
            progress=bar,
        )
    output.one(result, plot)


def _page(html: str) -> Path:
    """Refuse a page that could not be written before the work starts, not after."""
    from embspace.cache import require_file
    from embspace.weights.json_files import path_of

    require_file(html)
    return path_of(html)
