"""`embspace score`: how good maps are on held-out text."""

import click

from . import options as o
from .followed import Followed
from .maps_option import NO_MAPS, chosen_maps, maps_option
from .opening import Opening
from .output import Output
from .ranges import range_option
from .texts import TextOptions, text_options


@o.command("score", "Maps on held-out text.")
@o.model_argument
@maps_option("Fitted maps.  [default: MODEL.maps, else fitted now, all pairs]")
@click.option(
    "--fit-sentences", metavar="A-B", help="Lines to fit, where maps are fitted now.  [the others]"
)
@range_option("-l", "--layer", "layers", multiple=True, help="Decode these.")
@o.plot_option
@text_options
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: TextOptions,
    maps: str | None,
    fit_sentences: str | None,
    layers: list[int] | None,
    plot: str | None,
) -> None:
    """Held-out r² of every pair of layers, and how well each layer decodes, mat beside id.

    Precision@k: how often the map's first token is among the model's own k first. Surprisal: −log
    of the model's probability of the map's first token, nats. KL(model ‖ map), nats. Each with a
    95 % interval over texts. Lines that the maps were fitted on are left out.
    --json prints {"r2": {"mat": {"0-30": …}, "id": …}, "layers": {"mat": {"0": {…}}, "id": …}}.

    \b
        embspace score
        embspace score gpt2 --maps gpt2.maps --text wiki.txt --sentences 9000-11999
    """
    opening.require_layers(layers)
    from embspace.maps.score import score

    model = text.run(opening.open())
    given = chosen_maps(maps or (NO_MAPS if fit_sentences else None), opening, model)
    read = text.read(model, fit=fit_sentences)
    with Followed() as bar:
        result = score(model, given, read, layers=layers, progress=bar)
    output.one(result, plot)
