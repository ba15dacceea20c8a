"""`embspace evidence states` and `logits`: what activated vectors name, and what is predicted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import options as o
from .followed import watched
from .opening import FEWER_VECTORS, Opening
from .output import Output
from .texts import read_text, require_text, some_texts_options

if TYPE_CHECKING:
    from embspace.evidence.state_overlap import Against
    from embspace.memory import Needs
    from embspace.read.reader import ReadableModel


@dataclass(frozen=True)
class Asked:
    """What both experiments are asked for."""

    top: int
    vectors: int
    per_text: int
    text: str | None
    texts: int
    column: str | None
    seed: int
    plot: str | None


overlap_options = o.gather(
    "asked",
    Asked,
    o.count("-k", "--top", default=50, help="k of R_k."),
    o.count(
        "-m",
        "--vectors",
        default=5,
        metavar="M",
        help="Most activated vectors of each part, after the nonlinearity.",
    ),
    o.count("--per-text", default=4, help="Random positions of each text."),
    some_texts_options(100),
    o.seed_option,
    o.plot_option,
)


@o.command("states", "Activated vectors and states.")
@o.model_argument
@overlap_options
@o.output_options
@o.opening_options
def states(opening: Opening, output: Output, asked: Asked) -> None:
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
    _measure(opening, output, asked, "state")


@o.command("logits", "Activated vectors and logits.")
@o.model_argument
@overlap_options
@o.output_options
@o.opening_options
def logits(opening: Opening, output: Output, asked: Asked) -> None:
    """Overlap R_k of activated parameter vectors with the final state (paper: App. B.2, Fig. 5).

    As `evidence states`, but against the state after the last block, whose projection the logits
    are: how much of the prediction the vectors of each layer name already.

    \b
        embspace evidence logits
        embspace evidence logits gpt2-medium --text sentences.txt --json
    """
    _measure(opening, output, asked, "final")


def _measure(opening: Opening, output: Output, asked: Asked, against: "Against") -> None:
    """Run the model, then compare layer by layer."""
    from embspace.evidence.state_overlap import Overlaps
    from embspace.read.forecast import needs_of_vectors

    def needs(model: "ReadableModel") -> "Needs":
        n = asked.texts * asked.per_text
        used = 2 * min(n * asked.vectors, 4 * model.d) + 2 * model.n_heads * model.d_head
        return needs_of_vectors(model, model.n_layers * (n + used), passes=1)

    require_text(asked.text)
    model = opening.open(needs, FEWER_VECTORS)
    read = read_text(model, asked.text, asked.column, limit=asked.texts, seed=asked.seed)
    how = {"k": asked.top, "m": asked.vectors, "per_text": asked.per_text}
    found = Overlaps(model, read, against=against, **how)
    for _ in watched("layers")(found, model.n_layers):
        pass
    output.one(found.result(), asked.plot)
