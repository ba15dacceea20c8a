"""`embspace maps`: fitted maps in the cache."""

import click

from . import options as o
from .output import Output
from .terminal import say


@o.command("maps", "Fitted maps in the cache.")
@click.argument("files", nargs=-1, metavar="[FILE]…")
@click.option("--prune", is_flag=True, help="Delete those of the cache: all, or the named ones.")
@o.output_options
def command(output: Output, files: tuple[str, ...], prune: bool) -> None:
    """The maps that commands fitted on the spot and keep in the cache, newest first.

    With FILE: what a file of maps holds. To be deleted, one is named as listed, or by how its name
    begins.

    \b
        embspace maps
        embspace maps my.maps
        embspace maps --prune
    """
    from embspace.maps.inventory import kept_maps
    from embspace.maps.remembered import forget, named, remembered
    from embspace.show.wording import size

    if files and not prune:
        from embspace.maps.maps import Maps

        output.several("maps", [Maps.load(path) for path in files])
        return
    if prune:
        chosen = named(files) if files else remembered()
        say(f"deleted {len(chosen)} file(s), {size(forget(chosen))}")
        return
    output.one(kept_maps())
