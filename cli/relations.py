"""`embspace relations`: which relation each head holds."""

import re
from typing import TYPE_CHECKING, Any

import click

from . import options as o
from .followed import watched
from .opening import Opening
from .output import Output

if TYPE_CHECKING:
    from embspace.evidence.relation_sets import RelationSet

PLACE = re.compile(r"[lL]?(\d{1,9})(?:[.x:]|\.?[hH])(\d{1,9})")
WEIGHTS = ["embedding", "input-embedding", "first-mlp", "token"]  # sources that need no text


def _head(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    found = None if text is None else PLACE.fullmatch(text)
    if text is not None and found is None:
        raise click.BadParameter(f"{text[:40]!r}: give a layer and a head, as in 23.4.")
    return None if found is None else (int(found[1]), int(found[2]))


@o.command("relations", "Which relation each head holds.")
@o.model_argument
@click.option(
    "--pairs",
    "files",
    multiple=True,
    metavar="FILE",
    help="Word pairs instead of ours: .tsv or .csv, a source and a target a line, or .json: "
    "{NAME: [[source, target], …]}. Repeat for more.",
)
@click.option("--source", type=click.Choice(WEIGHTS), help="What a token looks like to a head.")
@click.option("--target", type=click.Choice(["embedding"]), help="The direction that raises it.")
@click.option("--norm", type=click.Choice(["raw", "folded"]), help="Gains of norms: folded in.")
@click.option("--centre", is_flag=True, help="Source rows less their mean over all tokens.")
@click.option("--unit", is_flag=True, help="Target rows of length one.")
@o.top_option("each set's own, else 10; 25 for V ≥ 128,000")
@click.option("--head", callback=_head, metavar="L.H", help="One head's relations, with examples.")
@o.seed_option
@o.plot_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    files: tuple[str, ...],
    top: int | None,
    head: tuple[int, int] | None,
    seed: int,
    plot: str | None,
    **sides: Any,
) -> None:
    """Which relation each head holds: the share of its pairs that W_VO brings together.

    A head promotes a pair (France, Paris) where Paris is among the first k of the row of France
    over the whole vocabulary; it suppresses it where among the last k. Beside each share the
    p-value of permuting the targets among the pairs, corrected over heads and relations. Pairs
    with a word that is not one token are left out and counted.

    Without --source, --norm, --centre or --unit each layer is read as is best for this model; with
    one of them, the others are the papers': rows of E, raw, as they are. --source first-mlp --norm
    raw is the convention of Elhelo & Geva 2024.

    \b
        embspace relations
        embspace relations gpt2 --source first-mlp --plot relations.svg
        embspace relations sample-gpt2 --head 0.5
        embspace relations gpt2 --pairs rivers.tsv --json
    """
    from embspace.evidence.relations import ScoringRelations

    if head is not None and plot is not None:
        raise click.UsageError("--plot draws all heads: leave --head out.")
    sets = _sets(files)
    model = opening.open()
    changes = {name: value for name, value in sides.items() if value not in (None, False)}
    where: dict[str, Any] = {"layers": [head[0]], "heads": [head[1]]} if head else {}
    scoring = ScoringRelations(model, sets, k=top, seed=seed, **where, **changes)
    for _ in watched("layers")(scoring, len(scoring)):
        pass
    output.one(scoring.of_head() if head else scoring.result(), plot)


def _sets(files: tuple[str, ...]) -> "tuple[RelationSet, ...] | None":
    """The relations of all files; None for ours. Raises EmbspaceError before a model is opened."""
    from embspace.evidence.relation_sets import names_of, read_relations

    found = tuple(one for file in files for one in read_relations(file))
    names_of(found)
    return found or None
