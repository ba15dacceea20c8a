"""`embspace models`: which models can be named, and what lies on this machine."""

import json

import click

from . import completion
from . import options as o
from .terminal import show


@click.command("models", context_settings=o.CONTEXT, short_help="What MODEL can be.")
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=completion.models)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@o.debug_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Bundled samples, aliases, supported architectures, and what the caches hold.

    With NAMEs: what each of them stands for, and whether it is here. Opens no connection.

    \b
        embspace models
        embspace models bert-seed3 gpt2
    """
    from .inventory import describe, inventory

    found = {"models": [describe(name) for name in names]} if names else inventory()
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from embspace.show.inventory import inventory_view

    show(inventory_view(found))
