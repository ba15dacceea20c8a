"""The work behind `embspace align`."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .interrupt import stop_if_interrupted
from .opening import Opening
from .output import Output
from .terminal import console, say

if TYPE_CHECKING:
    from embspace.read.reader import ReadableModel

WAY_OUT = "align fewer --groups, with --dtype float32."


def align_models(
    openings: tuple[Opening, Opening],
    output: Output,
    *,
    groups: tuple[str, ...] | None,
    plot: str | None,
    text: str | None,
    words: int | None,
    **how: Any,
) -> None:
    """Open both models, match their layers, show the result and draw it."""
    if text is not None or words is not None:
        raise click.UsageError("--text and --words go with --states.")
    from embspace.between.alignment import align

    a, b = open_pair(openings, groups)
    result = align(a, b, groups=groups, watch=partial(_watched, "pairs of layers"), **how)
    output.one(result)
    if plot:
        from embspace.show.plots.alignment import plot_alignment

        plot_alignment(result, plot)
        say(f"wrote {plot}")


def compare_states(
    openings: tuple[Opening, Opening],
    output: Output,
    *,
    groups: tuple[str, ...] | None,
    plot: str | None,
    text: str | None,
    words: int | None,
    filters: tuple[str, ...],
    norm: str,
    seed: int,
) -> None:
    """Open both models, run them on a text, and show how alike their states are."""
    if groups or filters or norm != "raw":
        raise click.UsageError("--states takes none of --groups, --filter and --norm.")
    from embspace.between.state_alignment import WORDS, align_states
    from embspace.text.corpus import default_corpus, read_corpus

    a, b = (opening.open() for opening in openings)
    corpus = default_corpus(a) if text is None else read_corpus(text)
    watch = partial(_watched, "states")
    result = align_states(a, b, corpus, words=words or WORDS, seed=seed, watch=watch)
    output.one(result)
    if plot:
        from embspace.show.plots.alignment import plot_state_alignment

        plot_state_alignment(result, plot)
        say(f"wrote {plot}")


def open_pair(
    openings: tuple[Opening, Opening], groups: tuple[str, ...] | None
) -> "tuple[ReadableModel, ReadableModel]":
    """A, then B; memory for both is asked for, and B refused where the two do not go together."""
    from embspace.between.alignment_forecast import needs_of_alignment
    from embspace.between.shared_tokens import shared_tokens

    a = openings[0].open()

    def needs(b: "ReadableModel") -> Any:
        shared_tokens(a.vocabulary, b.vocabulary)
        return needs_of_alignment(a, b, groups)

    return a, openings[1].open(needs, WAY_OUT)


def _watched(what: str, steps: Iterable[None], total: int) -> Iterable[None]:
    """The steps with a bar on stderr; an interrupt that a library swallowed ends them."""
    from embspace.show.progress import tracked

    for step in tracked(steps, total, what, console(stderr=True)):
        stop_if_interrupted()
        yield step
