"""`embspace evidence`: the experiments of the embedding-space paper, one command each."""

from importlib import import_module

import click

from .options import CONTEXT

EXPERIMENTS = ("pairs", "inverse", "concepts", "states", "logits", "trust")


class Experiments(click.Group):
    """The experiments, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, those that read weights alone first."""
        return list(EXPERIMENTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The experiment of that name, or None."""
        if cmd_name not in EXPERIMENTS:
            return None
        return import_module(f".evidence_{cmd_name}", __package__).command


@click.group(
    "evidence",
    cls=Experiments,
    context_settings=CONTEXT,
    short_help="Experiments: is vocabulary space a good place to read?",
)
def command() -> None:
    """The experiments that say whether weights may be read in vocabulary space.

    Each prints what it measures beside a baseline. pairs, inverse and concepts read weights alone;
    states, logits and trust run the model on a text.

    \b
        embspace evidence pairs
        embspace evidence concepts sample-gpt2 Paris London Rome
        embspace evidence trust sample-gpt2
    """
