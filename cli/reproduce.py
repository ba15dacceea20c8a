"""`embspace reproduce`: a paper's experiments, claim by claim."""

from importlib import import_module

import click

from .options import CONTEXT

PAPERS = ("jump", "embedding")


class Papers(click.Group):
    """The papers, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their short names."""
        return list(PAPERS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The paper of that name, or None."""
        if cmd_name not in PAPERS:
            return None
        return import_module(f".reproduce_{cmd_name}", __package__).command


@click.group(
    "reproduce",
    cls=Papers,
    context_settings=CONTEXT,
    short_help="A paper's claims, measured on a model.",
)
def command() -> None:
    """Measure what a paper claims on a model of your own: which claims hold, and which do not.

    Writes a folder: figures (PNG, SVG), tables (CSV, JSON) and one page, index.html. Interrupted,
    the same command goes on where it was.

    \b
        embspace reproduce jump --quick
        embspace reproduce embedding --quick
        embspace reproduce jump gpt2 --text wiki.txt --text news.txt
    """
