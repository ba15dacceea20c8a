"""`embspace token`: one token across the whole model."""

import functools
from typing import Any

import click

from embspace.models.aliases import DEFAULT_SAMPLE

from . import options as o
from .opening import Opening
from .output import Output
from .terminal import say


def words_argument(command: o.Command) -> o.Command:
    """MODEL and the words; a single argument is a word for the bundled sample."""

    @click.argument("given", nargs=-1, required=True, metavar="[MODEL] TOKEN…")
    @functools.wraps(command)
    def with_words(*, given: tuple[str, ...], **rest: Any) -> Any:
        model, words = (given[0], given[1:]) if len(given) > 1 else (DEFAULT_SAMPLE, given)
        return command(model=model, words=words, **rest)

    return with_words


@click.command("token", context_settings=o.CONTEXT, short_help="One token across a model.")
@words_argument
@o.top_option
@o.filter_option
@o.norm_option
@o.output_options
@o.opening_options
@o.debug_option
def command(
    opening: Opening, output: Output, words: tuple[str, ...], top: int | None, **how: Any
) -> None:
    """A token's neighbours in E, and the heads and neurons that use it most, over all layers.

    A word is read in each spelling that is one token, with and without a space before it; #17
    names a token by its id. With one argument the bundled sample is read.
    --json prints one result's to_dict(), several as {"tokens": [...]}.

    \b
        embspace token London
        embspace token gpt2 Paris "#464"
    """
    from embspace.projection.needs import needs_of_token

    from .spelling import tell_spellings

    model = opening.open(needs_of_token, "use --dtype float32, or a machine with more memory.")
    for word in words:
        tell_spellings(model.vocabulary, word, say)
    readings = [r for word in words for r in model.token(word, top or 20, **how)]
    output.several("tokens", readings)
