"""`embspace heads`: what attention heads say in vocabulary space."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .places import place_argument
from .reading_options import reading_options


@o.command("heads", "Attention heads: token pairs.")
@place_argument("head")
@o.layer_option
@o.head_option
@o.circuit_option
@o.top_option("5 a line, 30 with --layer and --head")
@o.filter_option
@click.option(
    "--exclude-same/--include-same",
    default=None,
    help="Pairs of a token with itself.  [default: left out, but not of the papers' reading]",
)
@click.option(
    "--exclude-same-word",
    is_flag=True,
    help="Leave out pairs of one word too: equal but for case and a word-start mark (We, ·we).",
)
@click.option("--smallest", is_flag=True, help="The smallest scores instead of the largest.")
@click.option("--token", metavar="T", help="Only pairs with this word, on either side.")
@reading_options
@o.norm_option
@o.inverse_option
@click.option("--distance", type=int, metavar="N", help="Rotary models: QK at this distance.")
@o.output_options
@o.opening_options
def command(opening: Opening, output: Output, **given: Any) -> None:
    """The strongest token pairs of attention heads, over the whole vocabulary, exactly.

    W_VO: which token, attended to, promotes which. W_QK: which token attends to which. With
    a layer and a head (10.0, 10x0, L10H0, 10 0, or --layer 10 --head 0): the full table. Otherwise
    one line a circuit, as they are found: a layer alone reads every head of it, --head alone that
    head in every layer.

    ×rms is a score over the root mean square of all V × V scores of that circuit. Of so many, even
    random weights have a largest one near √(4 ln V), 6.6 for V = 50,000: less is noise, shown dim.
    --json prints one result's to_dict(), several as {"heads": [...]}.

    \b
        embspace heads
        embspace heads gpt2 10.0 --filter words
        embspace heads gpt2 --layer 10 --head 0 --token Paris --json
    """
    opening.require_layers([n for n in (given.get("layer"),) if n is not None])
    from .circuits import read_heads

    read_heads(opening, output, **given)
