"""`embspace evidence trust`: does a head do what its weights say?"""

from typing import TYPE_CHECKING

from . import options as o
from .followed import watched
from .opening import Opening
from .output import Output
from .terminal import say
from .texts import read_text, require_text, some_texts_options

if TYPE_CHECKING:
    from embspace.notation import Norm


@o.command("trust", "A grade for each head's reading.")
@o.model_argument
@some_texts_options(100)
@o.count("--max-tokens", default=64, least=6, help="Longer texts are cut.")
@o.norm_option
@o.plot_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: str | None,
    texts: int,
    column: str | None,
    max_tokens: int,
    norm: "Norm",
    plot: str | None,
) -> None:
    """Grade each head: does it do on a text what its weights say in vocabulary space?

    W_QK: within a row, the rank correlation of its scores for the row's tokens with the real
    attention logits. W_VO: the correlation, over the vocabulary, of its row for the token most
    attended to with what the head really writes. Both beside the readings of the layer's other
    heads, W_VO also beside its rows for other tokens. some: agreement of at least 0.2 that leads
    every baseline for certain (95 % over texts); strong: at least 0.5; none: less.
    `embspace heads` shows the grades from then on.

    \b
        embspace evidence trust
        embspace evidence trust gpt2 --text sentences.txt --texts 200
    """
    from embspace.evidence.grades import remember
    from embspace.evidence.head_trust import Trusting

    require_text(text)
    model = opening.open()
    read = read_text(model, text, column, limit=texts, max_tokens=max_tokens)
    measuring = Trusting(model, read, norm=norm)
    for _ in watched("texts")(measuring, len(measuring)):
        pass
    result = measuring.result()
    output.one(result, plot)
    if not remember(model, result):
        say("note: the grades could not be kept in the cache, so `embspace heads` won't show them")
