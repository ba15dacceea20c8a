"""`embspace evidence readings`: which reading of a model's heads means something?"""

import click

from . import options as o
from .followed import watched
from .opening import Opening
from .output import Output
from .terminal import say
from .texts import read_text, require_text, some_texts_options


@o.command("readings", "Which sides to read heads through.")
@o.model_argument
@some_texts_options(30)
@click.option("--no-keep", is_flag=True, help="Only measure: leave the defaults as they are.")
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: str | None,
    texts: int,
    column: str | None,
    no_keep: bool,
) -> None:
    """Measure which reading of heads means something, and make it the default of each layer.

    Tries each source side that weights give (embedding, first-mlp), centred or not, with unit rows
    or not, and with norms folded in. recall: how well heads promote the pairs of known relations
    (capitals, plurals, tools, …), beyond permuted targets; agreement: how well W_VO's rows agree
    with what heads write on a text. Layers in five bands; the best reading of a band becomes the
    default of `embspace heads`, `ff` and `vectors` on this machine.

    \b
        embspace evidence readings
        embspace evidence readings gpt2 --texts 50 --csv readings.csv
    """
    from embspace.evidence.reading_choice import ChoosingReadings

    require_text(text)
    model = opening.open()
    read = read_text(model, text, column, limit=texts, max_tokens=64)
    choosing = ChoosingReadings(model, read)
    for _ in watched("steps")(choosing, len(choosing)):
        pass
    result = choosing.result()
    output.one(result)
    if not no_keep:
        say(f"kept as the default reading of {choosing.keep(result)} layers")
