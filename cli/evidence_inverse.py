"""`embspace evidence inverse`: is E^T as good an inverse of E as E^+?"""

import click

from . import options as o
from .followed import working
from .opening import Opening
from .output import Output
from .texts import read_text, require_text, some_texts_options


@o.command("inverse", "E^T against E^+.")
@o.model_argument
@o.count("-n", "--vectors", default=300, least=2, help="Vectors of each kind.")
@click.option(
    "-k",
    "--entries",
    "--keep",
    "keep",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="K",
    help="Entries kept of a row; repeat.  [default: 10 to 30000]",
)
@some_texts_options(300)
@o.seed_option
@o.plot_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    vectors: int,
    keep: tuple[int, ...],
    text: str | None,
    texts: int,
    column: str | None,
    seed: int,
    plot: str | None,
) -> None:
    """How well E^T and E^+ bring vectors back when only some entries are kept (paper: App. A).

    The cosine between X X^T and keep_k(X E) keep_k(X E'^T)^T, for E' = E^T and E^+; X are normal
    vectors, feed-forward values of all layers and, with --text, hidden states of all layers.

    \b
        embspace evidence inverse
        embspace evidence inverse gpt2-medium --text sentences.txt --plot inverse.svg
    """
    from embspace.evidence.inverse_check import KEPT, inverse_check, needs_of_inverse

    require_text(text)
    way_out = "measure fewer with --vectors."
    model = opening.open(lambda m: needs_of_inverse(m, vectors, len(keep or KEPT)), way_out)
    states = None
    if text is not None:
        from embspace.evidence.hidden_states import hidden_states

        read = read_text(model, text, column, limit=texts, seed=seed)
        with working(f"running the model on {len(read)} texts"):
            states = hidden_states(model, read)
    with working("comparing both inverses"):
        result = inverse_check(model, n=vectors, kept=keep or None, states=states, seed=seed)
    output.one(result, plot)
