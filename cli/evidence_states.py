"""`embspace evidence states`: do activated vectors name the tokens of the hidden state?"""

from typing import Any

import click

from . import options as o
from .evidence_overlap import measure, overlap_options
from .opening import Opening
from .output import Output


@click.command("states", context_settings=o.CONTEXT, short_help="Activated vectors and states.")
@o.model_argument
@overlap_options
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, **given: Any) -> None:
    """Overlap R_k of activated parameter vectors with the hidden state (paper: §4.2, Fig. 2).

    At a position, of the k top tokens of the state after a block, the share that is among the top
    tokens of any of the m most activated vectors of that block: feed-forward keys (gate and up
    apart) and values, columns of W_V, rows of W_O. Most activated: the largest activations after
    the nonlinearity (gated: times the up side); for W_V and W_O the largest inputs of the output
    matrix. Beside it the same with positions permuted.
    Bundled samples run on our own sentences, others on Wikipedia unless --text says otherwise.

    \b
        embspace evidence states
        embspace evidence states gpt2-medium --text sentences.txt --plot states.svg
    """
    measure(opening, output, against="state", **given)
