"""`embspace evidence concepts`: which parameter vectors are near a topic?"""

from typing import TYPE_CHECKING

import click

from . import completion
from . import options as o
from .opening import FEWER_VECTORS, Opening
from .output import Output
from .spelling import tell_spellings
from .terminal import say

if TYPE_CHECKING:
    from embspace.memory import Needs
    from embspace.notation import Norm
    from embspace.read.reader import ReadableModel


@o.command("concepts", "Vectors nearest to a topic.")
@click.argument("model", shell_complete=completion.models)
@click.argument("words", nargs=-1, required=True)
@o.layer_option
@click.option("--heads", is_flag=True, help="Columns of W_Q, W_K, W_V and rows of W_O as well.")
@click.option("--centred", is_flag=True, help="Without what all tokens have in common.")
@o.top_option("10 of each part")
@o.count("--draws", default=1000, least=20, help="Random topics to compare with.")
@o.filter_option
@o.norm_option
@o.seed_option
@o.plot_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    words: tuple[str, ...],
    layer: int | None,
    heads: bool,
    centred: bool,
    top: int | None,
    draws: int,
    filters: tuple[str, ...],
    norm: "Norm",
    seed: int,
    plot: str | None,
) -> None:
    """Keys and values nearest to the mean embedding of a topic's words (paper: §4.1).

    Beside them what random topics of as many whole words reach: p, how many of those are as near
    to the same vector; p best, how many are as near to any vector, which allows for the search.
    Embeddings share a large mean, to which some vectors are near whatever the topic: --centred
    takes it from all topics.

    \b
        embspace evidence concepts sample-gpt2 Paris London Rome
        embspace evidence concepts gpt2-medium she her woman girl --heads
    """
    from embspace.checking import index
    from embspace.evidence.concepts import concept, topic_ids
    from embspace.read.forecast import needs_of_vectors

    k = top or 10

    def needs(model: "ReadableModel") -> "Needs":
        if layer is not None:
            index(layer, model.n_layers, "layer")
        topic_ids(model.vocabulary, words)
        model.vocabulary.mask(filters)
        return needs_of_vectors(model, 6 * k, passes=1)

    model = opening.open(needs, FEWER_VECTORS)
    for word in words:
        tell_spellings(model.vocabulary, word, say)
    result = concept(
        model,
        words,
        k=k,
        draws=draws,
        heads=heads,
        centred=centred,
        layers=None if layer is None else [layer],
        norm=norm,
        filters=filters,
        seed=seed,
    )
    output.one(result, plot)
