"""`embspace lens`: what each layer of a model would say."""

from pathlib import Path
from typing import Any

import click

from embspace.weights.aliases import bundled

from . import options as o
from .followed import Followed
from .maps_option import NO_MAPS, found_maps
from .opening import Opening
from .output import Output
from .places import prompt_argument
from .ranges import numbers_or, range_option
from .terminal import say
from .texts import column_option, no_special_option, read_text, require_text, text_option


@o.command("lens", "What each layer would say.")
@prompt_argument
@click.option(
    "--maps",
    "--map",
    "maps",
    multiple=True,
    metavar="LENS",
    help="id (no map), mat, affine, ridge, refined, or a FILE of maps. Repeat for several.  "
    "[default: id, and MODEL.maps, or mat with --text or a sample; id, mat, affine, refined with "
    "--compare] none: leave MODEL.maps aside.",
)
@range_option("--layers", help="Only these states, of 0 … L, ends included.")
@click.option(
    "--positions",
    callback=numbers_or("last", "masks"),
    metavar="0-5,8|last|masks",
    help="Only these tokens of the prompt, special ones counted, ends included.",
)
@o.top_option("10, of which the grid shows the first")
@click.option("--track", metavar="TOKEN", help="Rank and probability of a token: a word or #ID.")
@o.count("--generate", help="Show N new tokens instead.")
@click.option("--inside", is_flag=True, help="Also after attention, before the feed-forward.")
@no_special_option
@click.option("--compare", is_flag=True, help="Score lenses on held-out text instead.")
@text_option("What maps are fitted on, and --compare scored on")
@column_option
@o.count("--rows", least=2, help="Fit on so many lines at most.")
@o.seed_option
@click.option("--html", metavar="FILE", help="Write a page that needs nothing else.")
@o.plot_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    prompt: str | None,
    maps: tuple[str, ...],
    layers: list[int] | None,
    positions: Any,
    top: int | None,
    track: str | None,
    generate: int | None,
    inside: bool,
    no_special: bool,
    compare: bool,
    text: str | None,
    column: str | None,
    rows: int | None,
    seed: int,
    html: str | None,
    plot: str | None,
) -> None:
    """The most likely token of every layer at every position of PROMPT, shaded by probability.

    id decodes each state as it is (the logit lens); mat through the least-squares map to the last
    state, fitted on --text (a sample: on our own) where it is not remembered. The last layer is the
    model's own output.
    A masked model's prompt may hold any number of mask tokens. "settled": the layer from which the
    final answer stays on top. One position is shown as a table of its top tokens.
    --compare: KL, cross-entropy, Precision@k and Surprisal of several lenses on the same held-out
    positions, with 95 % intervals and what each cost.
    --json prints {"positions": […], "grids": {"id": {"layers", "tokens", "p", …}, …}, …}.

    \b
        embspace lens
        embspace lens "The capital of France is" --maps id --positions last --track Paris
        embspace lens sample-bert-a "The [MASK] of France is [MASK]." --html lens.html
        embspace lens "The port is" --generate 8
        embspace lens --compare
    """
    if compare:
        _refuse(
            "--compare",
            {
                "PROMPT": prompt,
                "--positions": positions,
                "--top": top,
                "--track": track,
                "--generate": generate,
                "--inside": inside,
                "--html": html,
            },
        )
    if generate:
        _refuse("--generate", {"--positions": positions, "--inside": inside})
    page = None if html is None else _page(html)
    require_text(text)
    lenses = tuple(one for one in maps if one != NO_MAPS)
    opening.require_layers(layers)
    model = opening.open()
    if compare:
        from embspace.maps.lens_comparison import DEFAULT, compare_lenses

        read = read_text(model, text, column, seed=seed, special=not no_special)
        with Followed() as bar:
            compared = compare_lenses(
                model, lenses or DEFAULT, read, layers=layers, rows=rows, progress=bar
            )
        output.one(compared, plot)
        return
    from embspace.maps.lens import TOP, lens
    from embspace.maps.named import IDENTITY

    read = None
    if text is not None or (seed and bundled(model.name) is not None):
        read = read_text(model, text, column, seed=seed)
    elif not maps:
        here = found_maps(opening, model)
        lenses = (IDENTITY, str(here)) if here else ()
    with Followed() as bar:
        result: Any = lens(
            model,
            prompt,
            lenses or None,
            layers=layers,
            positions=positions,
            k=top or TOP,
            track=track,
            generate=generate or 0,
            inside=inside,
            special=not no_special,
            text=read,
            rows=rows,
            progress=bar,
        )
    output.one(result)
    if page:
        from embspace.cache import write_atomically
        from embspace.show.topics.lens import lens_page

        write_atomically(page, lens_page(result))
        say(f"wrote {page}")
    output.draw(result, plot)


def _refuse(option: str, others: dict[str, Any]) -> None:
    """Wrong usage where options were given that another does not go with."""
    wrong = [name for name, value in others.items() if value]
    if wrong:
        raise click.UsageError(f"{option} takes no {' and no '.join(wrong)}.")


def _page(html: str) -> Path:
    """Refuse a page that could not be written before the work starts, not after."""
    from embspace.cache import require_file
    from embspace.weights.json_files import path_of

    require_file(html)
    return path_of(html)
