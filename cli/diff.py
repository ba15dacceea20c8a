"""`embspace diff`: what fine-tuning changed, in words."""

import click

from . import options as o
from .align import GROUPS, groups_named
from .followed import watched
from .opening import Opening
from .output import Output


@o.command("diff", "What fine-tuning changed.")
@click.option("--groups", callback=groups_named, metavar="K,V,…", help=f"Only these: {GROUPS}.")
@click.option("--words", metavar="FILE", help="The task's words, one a line.  [default: sentiment]")
@o.count("--show", "--rows", "rows", default=3, help="Rows shown of each layer.")
@o.count("-k", "--top", "k", default=8, help="Tokens.")
@o.count("--scored", default=20, help="Most moved rows of each layer that are scored.")
@o.count("--ends", default=50, help="Tokens at either end of a row that count for its score.")
@o.count(
    "--turns", default=99, least=0, help="Random turns that scores are compared with; 0 for none."
)
@o.plot_option
@o.seed_option
@o.output_options
@o.pair_options("sample-gpt2", "sample-gpt2-reviews")
def command(
    openings: tuple[Opening, Opening],
    output: Output,
    groups: tuple[str, ...] | None,
    words: str | None,
    rows: int,
    k: int,
    scored: int,
    ends: int,
    turns: int,
    plot: str | None,
    seed: int,
) -> None:
    """The parameter vectors of B (fine-tuned) less those of A (its base), read in vocabulary space.

    For each group and layer the rows that moved most, with the tokens of x E and of −x E, and the
    classifier's directions by label. Which groups carry the task's words: the share of them among
    the tokens at either end, beside random tokens of equally long rows (p) and the same rows turned
    at random in vocabulary space (p turned). B may be the folder of a LoRA adapter.

    \b
        embspace diff
        embspace diff gpt2 gpt2-imdb --words sentiment.txt --json
    """
    from embspace.between.adapter import is_adapter
    from embspace.between.diff import diff

    base, name = openings[0].open(), openings[1].model
    result = diff(
        base,
        name if is_adapter(name) else openings[1].open(),
        groups=groups,
        words=words,
        rows=rows,
        k=k,
        scored=scored,
        ends=ends,
        turns=turns,
        seed=seed,
        watch=watched("layers"),
    )
    output.one(result, plot)
