"""The maps that a command reads through: of --maps, or those that `fit` left in this folder."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .opening import Opening
from .options import Command
from .terminal import say

if TYPE_CHECKING:
    from embspace.maps.maps import Maps
    from embspace.weights.model import Model

NO_MAPS = "none"


def maps_option(what: str) -> Command:
    """--maps, of which `what` says what it is for."""
    more = f" {NO_MAPS}: leave MODEL.maps aside."
    return click.option("--maps", "--map", "maps", metavar="FILE", help=what + more)


def default_maps(model: str) -> str:
    """The file that maps of MODEL are kept in, unless another is named: below this folder."""
    return f"{Path(model).name}.maps"


def chosen_maps(
    given: str | None, opening: Opening, model: "Model", *, all_pairs: bool = False
) -> str | None:
    """The file of --maps, or the one that is here; None where maps are to be fitted."""
    if given is None:
        return found_maps(opening, model, all_pairs=all_pairs)
    return None if given == NO_MAPS else given


def found_maps(opening: Opening, model: "Model", *, all_pairs: bool = False) -> str | None:
    """MODEL.maps of this folder, where it is of this very model and will do; a line says which."""
    from embspace.errors import EmbspaceError
    from embspace.maps.maps import Maps

    path = default_maps(opening.model)
    if not Path(path).is_file():
        return None
    try:
        why_not = _why_not(Maps.load(path, model), all_pairs)
    except EmbspaceError as error:
        why_not = str(error)
    if why_not:
        say(f"note: {path} is not used: {why_not}")
        return None
    say(f"note: through {path}, this model's maps in this folder (--maps {NO_MAPS}: without)")
    return path


def _why_not(maps: "Maps", all_pairs: bool) -> str | None:
    n = maps.n_layers
    if any(not pair.source.isdigit() for pair in maps.pairs):
        return "its maps are of sub-modules, not of states."
    if all_pairs and any((l, m) not in maps for l in range(n) for m in range(l + 1, n + 1)):
        return "it holds no maps of all pairs (embspace fit --pairs all)."
    return None
