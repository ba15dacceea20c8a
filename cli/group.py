"""`embspace`: the group of commands, each imported when it is asked for."""

import difflib
import os
import sys
from importlib import import_module
from typing import Any

import click

from embspace import __version__

from . import interrupt
from .guard import PipeClosedError, guarded, open_missing_streams
from .options import CONTEXT, debug_option

COMMANDS = (
    *("heads", "ff", "token", "vectors", "lens", "evidence", "align"),
    *("stitch", "finetune", "diff"),
    *("fit", "score", "transfer", "submodules", "exit", "alternate", "maps"),
    *("reproduce", "check", "models"),
)


class Commands(click.Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        return import_module(f".{cmd_name}", __package__).command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the nearest name in the message where there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1) if args else []
            if not near or "mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]}?", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; a reader that left is told to `guard`, not to click."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosedError from error

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command; leave with 0, or with one of the codes in `guard`."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        code = guarded(lambda: super(Commands, self).main(*args, standalone_mode=False, **extra))
        sys.exit(code)


@click.group(cls=Commands, context_settings=CONTEXT)
@click.version_option(__version__, "--version", prog_name="embspace")
@debug_option
def cli() -> None:
    """Read a transformer in words: its weights in vocabulary space.

    Start with the bundled sample, no download needed:

    \b
        embspace heads
        embspace heads --layer 3 --head 1
        embspace heads gpt2 --layer 10 --head 0 --token Paris
        embspace ff gpt2 --layer 11 --neuron 907

    MODEL is a Hub name, a folder, a .gguf file, an alias or a bundled sample (`embspace models`).
    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
    130 interrupted, 141 when the reader of a pipe left early (`| head`), as cat and git do.
    For shell completion, put  eval "$(_EMBSPACE_COMPLETE=bash_source embspace)"  into ~/.bashrc
    (zsh_source, fish_source for those shells).
    """


def start() -> None:
    """The command line as a process of its own."""
    interrupt.watch()
    open_missing_streams()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    cli.main(prog_name="embspace")
