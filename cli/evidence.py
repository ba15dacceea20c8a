"""`embspace evidence`: the experiments of the embedding-space paper, one command each."""

import click

from . import (
    evidence_concepts,
    evidence_inverse,
    evidence_pairs,
    evidence_readings,
    evidence_states,
    evidence_trust,
)
from .options import CONTEXT, ExampledGroup

# Those that read weights alone first.
EXPERIMENTS: dict[str, click.Command] = {
    "pairs": evidence_pairs.command,
    "inverse": evidence_inverse.command,
    "concepts": evidence_concepts.command,
    "states": evidence_states.states,
    "logits": evidence_states.logits,
    "trust": evidence_trust.command,
    "readings": evidence_readings.command,
}


@click.group(
    "evidence",
    cls=ExampledGroup,
    commands=EXPERIMENTS,
    context_settings=CONTEXT,
    short_help="Experiments: is vocabulary space a good place to read?",
)
def command() -> None:
    """The experiments that say whether weights may be read in vocabulary space.

    Each prints what it measures beside a baseline. pairs, inverse and concepts read weights alone;
    states, logits, trust and readings run the model on a text.

    \b
        embspace evidence pairs
        embspace evidence concepts sample-gpt2 Paris London Rome
        embspace evidence trust sample-gpt2
    """
