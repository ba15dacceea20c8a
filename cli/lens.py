"""`embspace lens`: what each layer of a model would say."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .places import prompt_argument
from .ranges import numbers, numbers_or
from .texts import column_option, no_special_option, text_option


@click.command("lens", context_settings=o.CONTEXT, short_help="What each layer would say.")
@prompt_argument
@click.option(
    "--maps",
    "--map",
    "maps",
    multiple=True,
    metavar="LENS",
    help="id (no map), mat, affine, ridge, refined, or a FILE of maps. Repeat for several.  "
    "[default: id, and mat with --text or a sample; id, mat, affine, refined with --compare]",
)
@click.option(
    "--layers",
    callback=numbers,
    metavar="0-5,8",
    help="Only these states, of 0 … L, ends included.",
)
@click.option(
    "--positions",
    callback=numbers_or("last", "masks"),
    metavar="0-5,8|last|masks",
    help="Only these tokens of the prompt, special ones counted, ends included.",
)
@o.top_option("10, of which the grid shows the first")
@click.option("--track", metavar="TOKEN", help="Rank and probability of a token: a word or #ID.")
@click.option(
    "--generate", type=click.IntRange(min=1), metavar="N", help="Show N new tokens instead."
)
@click.option("--inside", is_flag=True, help="Also after attention, before the feed-forward.")
@no_special_option
@click.option("--compare", is_flag=True, help="Score lenses on held-out text instead.")
@text_option("What maps are fitted on, and --compare scored on")
@column_option
@click.option(
    "--rows", type=click.IntRange(min=2), metavar="N", help="Fit on so many lines at most."
)
@o.seed_option
@click.option("--html", metavar="FILE", help="Write a page that needs nothing else.")
@o.plot_option
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, **given: Any) -> None:
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
    from .lensing import compare_on_text, look_at_prompt

    compare = given.pop("compare")
    (compare_on_text if compare else look_at_prompt)(opening, output, **given)
