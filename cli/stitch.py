"""`embspace stitch`: one model's first blocks on another's fine-tuned last ones."""

from typing import TYPE_CHECKING

import click

from . import options as o
from .followed import watched
from .opening import Opening
from .output import Output
from .ranges import range_option

if TYPE_CHECKING:
    from embspace.between.stitch_kernel import Kind


@o.command("stitch", "Join two models, untrained.")
@o.data_options
@range_option("--keep", help="Blocks of A kept.  [default: 0 to all]")
@range_option("--transplant", help="Last blocks of B.  [default: 1 to those trained]")
@o.choice(
    "--kernel",
    "kind",
    values=["pinv", "transpose"],
    help="pinv: E_A E_B⁺; transpose: E_A E_Bᵀ, scaled.",
)
@click.option("--match-scale/--no-match-scale", default=True, help="Scale to B's stream.")
@click.option("--final-norm", is_flag=True, help="A's final norm first, as the paper's code has.")
@click.option("--positions", is_flag=True, help="Add B's positions, as the paper's code does.")
@o.count(
    "--texts",
    "n_test",
    default=400,
    least=4,
    help="Held-out texts: half choose the best cut, half score it.",
)
@click.option("--controls/--no-controls", default=True, help="Also with random kernels.")
@o.plot_option
@o.seed_option
@o.output_options
@o.pair_options("sample-gpt2-b", "sample-gpt2-reviews")
def command(
    openings: tuple[Opening, Opening],
    output: Output,
    data: str,
    text_column: str | None,
    label_column: str | None,
    max_tokens: int | None,
    keep: list[int] | None,
    transplant: list[int] | None,
    kind: "Kind",
    match_scale: bool,
    final_norm: bool,
    positions: bool,
    n_test: int,
    controls: bool,
    plot: str | None,
    seed: int,
) -> None:
    """Feed A's states, through the vocabulary, into the last blocks and classifier of B.

    A is pretrained only, B a folder of `embspace finetune`; nothing is trained. The kernel
    E_A E_B⁺ (over the tokens that both know), times one number by which A's embeddings become as
    long as B's, carries A's stream after its first blocks into B's stream. For every number of
    blocks kept and transplanted: accuracy with its 95 % interval, beside chance, B alone, a random
    kernel of equal spectrum and one of shuffled tokens. The best cut is chosen on one half of the
    texts and scored on the other.

    \b
        embspace stitch --data sample --texts 100
        embspace stitch gpt2 gpt2-medium-imdb --data imdb --plot stitch.svg
    """
    from embspace.between.carrying import Carrying
    from embspace.between.stitch import stitch

    a, b = (opening.open() for opening in openings)
    result = stitch(
        a,
        b,
        data,
        keep=keep,
        transplant=transplant,
        kind=kind,
        carry=Carrying(match_scale, final_norm, positions),
        controls=controls,
        n_test=n_test,
        max_tokens=max_tokens,
        text_column=text_column,
        label_column=label_column,
        seed=seed,
        watch=watched("batches"),
    )
    output.one(result, plot)
