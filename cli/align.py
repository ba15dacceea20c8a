"""`embspace align`: which layer of one model corresponds to which of another."""

from typing import TYPE_CHECKING

import click

from . import options as o
from .followed import watched
from .opening import Opening
from .output import Output
from .texts import read_text, require_text

if TYPE_CHECKING:
    from embspace.between.state_alignment import StateAlignment
    from embspace.memory import Needs
    from embspace.notation import Norm
    from embspace.read.reader import ReadableModel

GROUPS = "K, K_gate, K_up, V, W_Q, W_K, W_V, W_O"


def groups_named(
    ctx: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    """`K,V` as names; None for all."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise click.BadParameter(f"{text!r}: give groups like K,V,W_Q.")
    return names


@o.command("align", "Layers of two models, matched.")
@click.option("--groups", callback=groups_named, metavar="K,V,…", help=f"Only these: {GROUPS}.")
@o.filter_option
@o.norm_option
@click.option("--states", is_flag=True, help="Compare states on the same words instead.")
@click.option(
    "--text",
    metavar="FILE",
    help="With --states: sentences, one a line; or a table.",
)
@o.count("--words", help="With --states: take about so many words.  [default: 3000]")
@o.plot_option
@o.seed_option
@o.output_options
@o.pair_options("sample-bert-a", "sample-bert-b")
def command(
    openings: tuple[Opening, Opening],
    output: Output,
    groups: tuple[str, ...] | None,
    filters: tuple[str, ...],
    norm: "Norm",
    states: bool,
    text: str | None,
    words: int | None,
    plot: str | None,
    seed: int,
) -> None:
    """Match the layers of two models A and B by what their parameters say of the same tokens.

    Feed-forward keys K (gate and up apart) and values V, and the columns of W_Q, W_K, W_V and rows
    of W_O, are read as scores over the tokens that both vocabularies hold (matched by token, so
    tokenizers, depths and widths may differ). Two layers are as alike as the mean |correlation| of
    all pairs of their vectors; the one-to-one match with the largest sum is marked, beside the
    same in feature space (without the vocabulary), where the widths agree.
    p: how often a one-to-one match drawn at random lies as close to the diagonal (mean |l − l'|;
    layers of models of different depths by their relative position). Where several matches are
    equally good, because layers score alike, p is the mean over them, or absent where all are.
    --states runs both models on a text instead: debiased linear CKA, the best rotation and least
    squares between all their states at the same words (paired by their characters), fits scored on
    other texts than they were made on. Samples run on our own sentences, others on Wikipedia
    unless --text says otherwise.
    --json prints {"groups": {"K": {"vocabulary": {"match", "score", "diagonal", "p", …}, …}, …}}.

    \b
        embspace align
        embspace align bert-seed1 bert-seed2 --groups K,V --plot panels.svg
        embspace align gpt2 gpt2-medium --filter words --json
        embspace align gpt2 gpt2-medium --states --text sentences.txt --plot states.svg
    """
    if states and (groups or filters or norm != "raw"):
        raise click.UsageError("--states takes none of --groups, --filter and --norm.")
    if not states and (text is not None or words is not None):
        raise click.UsageError("--text and --words go with --states.")
    if states:
        result = _compared_on_text(openings, text, words, seed)
    else:
        from embspace.between.alignment import align

        a, b = _opened(openings, groups)
        watch = watched("pairs of layers")
        result = align(a, b, groups=groups, filters=filters, norm=norm, seed=seed, watch=watch)
    output.one(result, plot)


def _opened(
    openings: tuple[Opening, Opening], groups: tuple[str, ...] | None
) -> "tuple[ReadableModel, ReadableModel]":
    """A, then B; memory for both is asked for, and B refused where the two do not go together."""
    from embspace.between.alignment_forecast import needs_of_alignment
    from embspace.between.shared_tokens import shared_tokens

    a = openings[0].open()

    def needs(b: "ReadableModel") -> "Needs":
        shared_tokens(a.vocabulary, b.vocabulary)
        return needs_of_alignment(a, b, groups)

    return a, openings[1].open(needs, "align fewer --groups, with --dtype float32.")


def _compared_on_text(
    openings: tuple[Opening, Opening], text: str | None, words: int | None, seed: int
) -> "StateAlignment":
    """Both models run on a text: how alike their states are at the same words."""
    from embspace.between.state_alignment import WORDS, align_states

    require_text(text)
    a, b = (opening.open() for opening in openings)
    read = read_text(a, text, seed=seed)
    return align_states(a, b, read, words=words or WORDS, watch=watched("states"))
