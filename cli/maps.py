"""`embspace maps`: fitted maps in the cache."""

import click

from . import options as o
from .output import Output
from .terminal import say


@click.command("maps", context_settings=o.CONTEXT, short_help="Fitted maps in the cache.")
@click.argument("files", nargs=-1, metavar="[FILE]…")
@click.option("--prune", is_flag=True, help="Delete them: all, or the named ones.")
@o.output_options
@o.debug_option
def command(output: Output, files: tuple[str, ...], prune: bool) -> None:
    """The maps that commands fitted on the spot and keep in the cache, newest first.

    A FILE is named as listed, or by how its name begins.

    \b
        embspace maps
        embspace maps --prune
    """
    from embspace.mapping.cached import forget, named, remembered
    from embspace.mapping.inventory import kept_maps
    from embspace.report.inventory import size

    if files and not prune:
        raise click.UsageError("files are named to be deleted: give --prune too.")
    if prune:
        chosen = named(files) if files else remembered()
        say(f"deleted {len(chosen)} file(s), {size(forget(chosen))}")
        return
    output.one(kept_maps())
