"""`embspace maps`: fitted maps in the cache."""

import click

from . import options as o
from .output import Output
from .terminal import say


@click.command("maps", context_settings=o.CONTEXT, short_help="Fitted maps in the cache.")
@click.option("--prune", is_flag=True, help="Delete them all.")
@o.output_options
@o.debug_option
def command(output: Output, prune: bool) -> None:
    """The maps that commands fitted on the spot and keep in the cache, newest first.

    \b
        embspace maps
        embspace maps --prune
    """
    from embspace.mapping.cached import forget, remembered
    from embspace.mapping.inventory import kept_maps
    from embspace.report.inventory import size

    if prune:
        files = remembered()
        say(f"deleted {len(files)} file(s), {size(forget(files))}")
        return
    output.one(kept_maps())
