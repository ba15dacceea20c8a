"""`embspace align`: which layer of one model corresponds to which of another."""

from typing import Any

import click

from . import options as o
from .opening import Opening
from .output import Output

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


@click.command("align", context_settings=o.CONTEXT, short_help="Layers of two models, matched.")
@click.option("--groups", callback=groups_named, metavar="K,V,…", help=f"Only these: {GROUPS}.")
@o.filter_option
@o.norm_option
@click.option("--states", is_flag=True, help="Compare states on the same words instead.")
@click.option("--text", metavar="FILE", help="With --states: sentences, one a line; or a table.")
@click.option(
    "--words",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --states: take about so many words.  [default: 3000]",
)
@o.plot_option
@o.seed_option
@o.output_options
@o.pair_options("sample-bert-a", "sample-bert-b")
@o.debug_option
def command(openings: tuple[Opening, Opening], output: Output, states: bool, **given: Any) -> None:
    """Match the layers of two models A and B by what their parameters say of the same tokens.

    Feed-forward keys K (gate and up apart) and values V, and the columns of W_Q, W_K, W_V and rows
    of W_O, are read as scores over the tokens that both vocabularies hold (matched by token, so
    tokenizers, depths and widths may differ). Two layers are as alike as the mean |correlation| of
    all pairs of their vectors; the one-to-one match with the largest sum is marked, beside the
    same in feature space (without the vocabulary), where the widths agree.
    p: how often a one-to-one match drawn at random lies as close to the diagonal (mean |l − l'|;
    layers of models of different depths by their relative position).
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
    from .aligning import align_models, compare_states

    (compare_states if states else align_models)(openings, output, **given)
