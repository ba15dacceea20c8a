"""`embspace token`: one token across the whole model."""

import functools
from typing import TYPE_CHECKING, Any

import click

from embspace.errors import VocabularyError
from embspace.weights.aliases import DEFAULT_SAMPLE

from . import completion
from . import options as o
from .opening import Opening
from .output import Output
from .places import names_a_model
from .reading_options import Through, reading_options
from .terminal import say

if TYPE_CHECKING:
    from embspace.memory import Needs
    from embspace.read.reader import ReadableModel
    from embspace.read.token import TokenReading

WAY_OUT = "use --dtype float32, or a machine with more memory."
TOP = 20


def words_argument(command: o.Command) -> o.Command:
    """MODEL and the words; a single argument is a word for the bundled sample."""

    @click.argument(
        "given",
        nargs=-1,
        required=True,
        metavar="[MODEL] WORD…",
        shell_complete=completion.models,
    )
    @functools.wraps(command)
    def with_words(*, given: tuple[str, ...], **rest: Any) -> Any:
        model, words = (given[0], given[1:]) if len(given) > 1 else (DEFAULT_SAMPLE, given)
        if len(given) == 1 and names_a_model(given[0]):
            raise click.UsageError(
                f"no WORD given: {given[0]!r} is a model. For the word itself, name both: "
                f"embspace token {DEFAULT_SAMPLE} {given[0]}"
            )
        return command(model=model, words=words, **rest)

    return with_words


@o.command("token", "One token across a model.")
@words_argument
@o.top_option(str(TOP))
@o.filter_option
@reading_options
@o.norm_option
@o.output_options
@o.opening_options
@click.pass_context
def command(
    ctx: click.Context,
    opening: Opening,
    output: Output,
    words: tuple[str, ...],
    top: int | None,
    through: Through,
    **how: Any,
) -> None:
    """A token's neighbours in E, and the heads and neurons that use it most, over all layers.

    A word is read in each spelling that is one token, with and without a space before it; #17
    names a token by its id. With one argument the bundled sample is read. Of several words, one
    that is not one token is said on stderr, the others are read, and the exit code is 1.

    Each head is listed in up to four roles, with its strongest partner. W_VO: "reads it,
    promotes" (attending to the token, it promotes the partner) and "writes it on seeing"
    (attending to the partner, it promotes the token). W_QK: "from it, attends to" and "to it,
    attention from". ×rms is a score over the root mean square of all scores of that head or
    vector; both lists are ordered by its size, largest first, whatever the sign.
    Without --source and its like this is the papers' reading; others take as long as all heads.
    --json prints one result's to_dict(), several as {"tokens": [...]}.

    \b
        embspace token London
        embspace token gpt2 Paris "#464"
    """
    model = opening.open(lambda m: _needs(m, words, how["filters"]), WAY_OUT)
    if through.is_asked:
        norm, layers = how["norm"], range(model.n_layers)
        through.prepare(model, layers, norm=norm)
        how["reading"] = [through.reading(model, at, norm=norm) for at in layers].__getitem__
    bad: list[VocabularyError] = []
    readings = _readings(model, words, top or TOP, how, bad)
    if not readings:
        raise bad[0]
    output.several("tokens", readings)
    for error in bad:
        say(f"error: {error}")
    ctx.exit(1 if bad else 0)


def _needs(model: "ReadableModel", words: tuple[str, ...], filters: tuple[str, ...]) -> "Needs":
    """What the work needs; raises EmbspaceError for a wrong filter, or where no word is a token."""
    from embspace.read.forecast import needs_of_token

    model.vocabulary.mask(filters)
    bad: list[VocabularyError] = []
    if not any(_is_token(model, word, bad) for word in words):
        raise bad[0]
    return needs_of_token(model)


def _is_token(model: "ReadableModel", word: str, bad: list[VocabularyError]) -> bool:
    """Whether a word can be read; why not goes to `bad`."""
    try:
        model.vocabulary.token_ids(word)
    except VocabularyError as error:
        bad.append(error)
        return False
    return True


def _readings(
    model: "ReadableModel",
    words: tuple[str, ...],
    k: int,
    how: dict[str, Any],
    bad: list[VocabularyError],
) -> "list[TokenReading]":
    from .spelling import tell_spellings

    readings: list[TokenReading] = []
    for word in words:
        if _is_token(model, word, bad):
            tell_spellings(model.vocabulary, word, say)
            readings += model.token(word, k, **how)
    return readings
