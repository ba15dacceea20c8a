"""`embspace evidence logits`: do activated vectors name the tokens of the prediction?"""

from typing import Any

import click

from . import options as o
from .evidence_overlap import measure, overlap_options
from .opening import Opening
from .output import Output


@click.command("logits", context_settings=o.CONTEXT, short_help="Activated vectors and logits.")
@o.model_argument
@overlap_options
@o.output_options
@o.opening_options
@o.debug_option
def command(opening: Opening, output: Output, **given: Any) -> None:
    """Overlap R_k of activated parameter vectors with the final state (paper: App. B.2, Fig. 5).

    As `evidence states`, but against the state after the last block, whose projection the logits
    are: how much of the prediction the vectors of each layer name already.

    \b
        embspace evidence logits
        embspace evidence logits gpt2-medium --text sentences.txt --json
    """
    measure(opening, output, against="final", **given)
