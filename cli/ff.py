"""`embspace ff`: what feed-forward neurons say in vocabulary space."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output
from .places import place_argument
from .reading_options import reading_options


@o.command("ff", "Neurons: keys and values.")
@place_argument("neuron")
@o.layer_option
@click.option("-n", "--neuron", type=int, metavar="N", help="Neuron, from 0.")
@click.option("--expert", metavar="N", help="Expert of a mixture: a number, or shared.")
@click.option("--related", is_flag=True, help="Neurons whose key and value share tokens.")
@click.option(
    "--absolute",
    is_flag=True,
    help="With --related: the largest |score|, so that opposite ends count as alike too.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Neurons a layer shows.  [default: 5, 40 with --layer]",
)
@o.top_option("8 a line, 20 with --neuron")
@o.filter_option
@reading_options
@o.norm_option
@o.output_options
@o.opening_options
def command(opening: Opening, output: Output, **given: Any) -> None:
    """The tokens of feed-forward keys and values, both ends, exactly.

    With a layer and a neuron (11.907, or --layer 11 --neuron 907): keys (gate and up where
    the layer is gated) and value side by side. Without a neuron: one line each for the neurons
    whose value singles out a token most
    (×rms: its strongest score over the root mean square of all its scores; a random vector reaches
    about √(2 ln V), 4.7 for V = 50,000, so that less is noise, shown dim). A line shows the
    stronger end, − marks the lower one.
    --related: neurons whose key and value have a Jaccard index of at least .15 over the 100 tokens
    with the largest scores (27 of 100 are shared), and their share by layer beside shuffled pairs.
    --json prints one result's to_dict(), several as {"neurons": [...]}
    or {"layers": [...]}.

    \b
        embspace ff
        embspace ff gpt2 11.907
        embspace ff gpt2-medium --related
    """
    opening.require_layers([n for n in (given.get("layer"),) if n is not None])
    from .neurons import read_feed_forward

    read_feed_forward(opening, output, **given)
