"""`embspace`: finds commands, and turns whatever goes wrong into one line and an exit code."""

import contextlib
import difflib
import io
import os
import sys
from importlib import import_module
from typing import Any

import click

from embspace import __version__
from embspace.errors import EmbspaceError

from .options import CONTEXT, DEBUG, debug_option

COMMANDS = ("heads", "ff", "token", "vectors", "check", "models")
FAILED, INTERRUPTED = 1, 130


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

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command; leave with 0, 1 (failed), 2 (wrong usage), 130 (interrupted)."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        code = _guarded(lambda: super(Commands, self).main(*args, standalone_mode=False, **extra))
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
    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage.
    For shell completion, put  eval "$(_EMBSPACE_COMPLETE=bash_source embspace)"  into ~/.bashrc
    (zsh_source, fish_source for those shells).
    """


def main() -> None:
    """The entry point."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not (sys.stderr and sys.stderr.isatty()):
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    cli.main(prog_name="embspace")


def _guarded(run: Any) -> int:
    """Run a command; a failure becomes one line on stderr and an exit code."""
    _never_fail_on_characters()
    DEBUG["on"] = False
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except SystemExit as error:  # rich leaves so when its pipe is closed
        return error.code if isinstance(error.code, int) else FAILED
    except Exception as error:
        if DEBUG["on"]:
            raise
        click.echo(f"error: {_one_line(error)}", err=True)
        return FAILED


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, (EmbspaceError, OSError)):
        return text or type(error).__name__
    return f"unexpected {type(error).__name__}: {text} (embspace --debug … shows where)"


def _pipe_closed() -> int:
    """The reader of our output has gone: say nothing, also not at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _never_fail_on_characters() -> None:
    """A terminal that lacks a character gets an escape instead of a crash."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
