"""`embspace check`: proof that the weights were read rightly."""

import json

import click

from . import options as o
from .opening import Opening, working
from .terminal import show


def layer_list(ctx: click.Context, parameter: click.Parameter, text: str | None) -> object:
    """`0,3,7-9` as layer numbers; None for all."""
    if text is None:
        return None
    try:
        parts = [[int(n) for n in part.split("-")] for part in text.split(",")]
        return [n for first, *last in parts for n in range(first, (last or [first])[0] + 1)]
    except ValueError:
        raise click.BadParameter(f"{text!r}: give layers like 0,3,7-9.") from None


@click.command("check", context_settings=o.CONTEXT, short_help="Prove the reading of a model.")
@o.model_argument
@click.option("--layers", callback=layer_list, metavar="0,3,7-9", help="Only these layers.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random texts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the certificate's to_dict().")
@o.opening_options
@o.debug_option
@click.pass_context
def command(
    ctx: click.Context, opening: Opening, layers: list[int] | None, seed: int, as_json: bool
) -> None:
    """Prove the reading of a model against its own forward pass.

    Our split of its weights must rebuild its queries, keys, values, attention and feed-forward
    outputs, residual stream and logits. Leaves with 1 where one of these fails.

    \b
        embspace check
        embspace check gpt2 --layers 0,11 --json
    """
    from embspace.models.certify import certify

    model = opening.open_unproved()
    with working("running the model and our parts side by side"):
        certificate = certify(model, seed=seed, layers=layers)
    if as_json:
        click.echo(json.dumps(certificate.to_dict(), indent=2))
    else:
        from embspace.report import as_rich

        show(as_rich(certificate))
    ctx.exit(0 if certificate.passed else 1)
