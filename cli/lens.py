"""`embspace lens`: what each layer of a model would say."""

from typing import Any

import click

from embspace.models.aliases import DEFAULT_SAMPLE

from . import completion
from . import options as o
from .opening import Opening
from .output import Output
from .texts import column_option, no_special_option, text_option


def numbers(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """`0,3,8:12` as numbers (B of A:B not included); `last` and `masks` as they are."""
    if text is None or (text in ("last", "masks") and parameter.name == "positions"):
        return text
    try:
        found = [n for part in text.split(",") for n in _range(part)]
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give numbers and ranges like 0,3,8:12.") from error
    return found


def _range(part: str) -> range:
    first, colon, last = part.strip().partition(":")
    start = int(first)
    stop = int(last) if colon else start + 1
    if not 0 <= start < stop < 1_000_000:
        raise ValueError(part)
    return range(start, stop)


@click.command("lens", context_settings=o.CONTEXT, short_help="What each layer would say.")
@click.argument("prompt", required=False)
@click.option(
    "-m",
    "--model",
    default=DEFAULT_SAMPLE,
    show_default=True,
    metavar="MODEL",
    shell_complete=completion.models,
    help="Hub name, folder, alias or bundled sample.",
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="LENS",
    help="id (no map), mat, affine, ridge, refined, or a FILE of maps. Repeat for several.  "
    "[default: id, and mat with --text or a sample; id, mat, affine, refined with --compare]",
)
@click.option("--layers", callback=numbers, metavar="A,B:C", help="Only these states, of 0 … L.")
@click.option(
    "--positions",
    callback=numbers,
    metavar="A,B:C|last|masks",
    help="Only these tokens of the prompt, special ones counted.",
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
        embspace lens "The capital of France is" --map id --positions last --track Paris
        embspace lens "The [MASK] of France is [MASK]." -m sample-bert-a --html lens.html
        embspace lens "The port is" --generate 8
        embspace lens --compare
    """
    from .lensing import compare_on_text, look_at_prompt
    from .token import names_a_model

    prompt = given.get("prompt")
    if prompt and names_a_model(prompt):
        raise click.UsageError(f"{prompt!r} is a model, not a prompt: give it with -m.")

    compare = given.pop("compare")
    (compare_on_text if compare else look_at_prompt)(opening, output, **given)
