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
    *("heads", "ff", "token", "vectors", "relations", "lens", "evidence", "align"),
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
        if cmd_name in WORDS:
            return WORDS[cmd_name]
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
        interrupt.note_command(args[0] if args else extra.get("args"))
        code = guarded(lambda: super(Commands, self).main(*args, standalone_mode=False, **extra))
        sys.exit(code)


@click.command("help", hidden=True, context_settings=CONTEXT)
@click.argument("names", nargs=-1, metavar="[COMMAND]…")
@click.pass_context
def help_command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """The help of a command: `embspace help evidence trust` is `embspace evidence trust --help`."""
    at = ctx.parent or ctx
    for name in names:
        group = at.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{at.command_path} has no commands of its own.", at)
        found = group.resolve_command(at, [name])[1]
        assert found is not None  # else it was refused
        at = click.Context(found, info_name=name, parent=at)
    click.echo(at.get_help())


@click.command("version", hidden=True, context_settings=CONTEXT)
def version_command() -> None:
    """The version, as --version prints it."""
    click.echo(f"embspace, version {__version__}")


WORDS = {"help": help_command, "version": version_command}


@click.group(cls=Commands, context_settings=CONTEXT)
@click.version_option(__version__, "--version", prog_name="embspace")
@debug_option
def cli() -> None:
    """Read a transformer in words: its weights in vocabulary space.

    Start with the bundled sample, no download needed:

    \b
        embspace heads
        embspace heads gpt2 10.0 --token Paris
        embspace ff gpt2 11.907
        embspace lens gpt2 "The capital of France is"

    Every command is `embspace COMMAND [MODEL] …`; `embspace help COMMAND` explains one. Ranges are
    0-5,8, both ends included; a head is 23.4, 23x4 or L23H4.
    MODEL is a Hub name, a folder, a .gguf file, an alias or a bundled sample (`embspace models`).
    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
    130 interrupted, 143 ended by SIGTERM, 141 when the reader of a pipe left early (`| head`), as
    cat and git do.
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
