"""`embspace evidence pairs`: do matching parameter vectors speak of the same tokens?"""

from typing import TYPE_CHECKING, Any

import click

from . import options as o
from .followed import watched
from .opening import FEWER_VECTORS, Opening
from .output import Output

if TYPE_CHECKING:
    from embspace.memory import Needs
    from embspace.notation import Norm
    from embspace.read.reader import ReadableModel


@o.command("pairs", "Matching against shuffled pairs.")
@o.model_argument
@o.layer_option
@o.count(
    "--draw",
    "--pairs",
    "pairs",
    default=1000,
    least=2,
    help="Pairs of each kind a layer, drawn at random.",
)
@click.option("--all", "every", is_flag=True, help="All pairs, as in the paper.")
@o.count("-k", "--top", default=100, help="k of Sim_k.")
@o.norm_option
@o.seed_option
@o.plot_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    layer: int | None,
    pairs: int,
    every: bool,
    top: int,
    norm: "Norm",
    seed: int,
    plot: str | None,
) -> None:
    """Sim_k of matching parameter vectors beside shuffled ones, by layer (paper: Fig. 6).

    Sim_k: Jaccard index of the k tokens with the largest |score|. Share: related pairs, whose
    Sim_k by signed scores is at least .15, as `embspace ff --related` counts them. Pairs: a
    neuron's key and value (gate and up apart), column j of W_V with row j of W_O, column j of W_Q
    with that of W_K; each query head with the key/value head it reads. With 95 % intervals.

    \b
        embspace evidence pairs
        embspace evidence pairs gpt2-medium --all --plot pairs.svg
    """
    from embspace.checking import index
    from embspace.evidence.matching_pairs import gathered, pair_similarities
    from embspace.read.forecast import needs_of_vectors

    def needs(model: "ReadableModel") -> "Needs":
        if layer is not None:
            index(layer, model.n_layers, "layer")
        n_layers = model.n_layers if layer is None else 1
        most = 3 * 4 * model.d + 4 * model.n_heads * model.d_head if every else 7 * pairs
        most *= 2  # by size, then by signed score
        return needs_of_vectors(model, n_layers * most, passes=1)

    model = opening.open(needs, FEWER_VECTORS)
    settings: dict[str, Any] = {
        "k": top,
        "sample": None if every else pairs,
        "norm": norm,
        "seed": seed,
    }
    layers = range(model.n_layers) if layer is None else [layer]
    work = pair_similarities(model, layers=layers, **settings)
    rows = tuple(row for of_layer in watched("layers")(work, len(layers)) for row in of_layer)
    output.one(gathered(model, rows, **settings), plot)
