"""`embspace fit`: linear maps between the layers of a model."""

import shlex
from contextlib import AbstractContextManager, nullcontext
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options as o
from .followed import Followed
from .interrupt import told_what_is_kept
from .maps_option import default_maps
from .opening import Opening
from .output import Output
from .terminal import say
from .texts import TextOptions, text_options

if TYPE_CHECKING:
    from embspace.maps.distributed import Group
    from embspace.maps.fit import Check
    from embspace.maps.maps import Maps
    from embspace.text.text import Text
    from embspace.weights.model import Model


@o.command("fit", "Fit linear maps between layers.")
@o.model_argument
@click.option("--out", metavar="FILE", help="Where to keep the maps.  [default: MODEL.maps]")
@o.choice(
    "--pairs", values=["final", "all"], help="From every layer to the last, or between all layers."
)
@o.choice(
    "--parts",
    values=["blocks", "submodules"],
    help="Between states, or over attention, feed-forward and norms of every block.",
)
@o.choice(
    "--kind",
    values=["mat", "affine", "ridge", "refined"],
    help="Least squares without intercept (the paper's), with one, with a penalty; or mat trained "
    "on towards the model's own output.",
)
@click.option(
    "--ridge",
    type=float,
    metavar="X",
    help="Penalty of --kind ridge, without unit: λ = X times the mean, over coordinates, of Σ x² "
    "over the rows.  [default: chosen for each layer on rows kept apart]",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@o.count("--rows", help="Fit so many lines at most, and score a third as many.")
@click.option("--until-converged", is_flag=True, help="Stop when more rows no longer help.")
@click.option("--resume", is_flag=True, help="Go on from what an unfinished run left behind.")
@o.choice(
    "--products",
    values=["float64", "float32"],
    help="Of the sums: float32 suits devices that are slow in float64, and keeps r² to 1e-4.",
)
@click.option(
    "--device-map", type=click.Choice(["auto"]), help="Spread a large model (accelerate)."
)
@text_options
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    text: TextOptions,
    out: str | None,
    pairs: Any,
    parts: Any,
    kind: Any,
    ridge: float | None,
    overwrite: bool,
    rows: int | None,
    until_converged: bool,
    resume: bool,
    products: Any,
    device_map: str | None,
) -> None:
    """Fit one least-squares matrix per pair of layers, and say how good each is on held-out text.

    A quarter of the lines is held out, drawn by --seed; with --sentences those lines are fitted and
    the others held out. r² is the mean over coordinates on held-out rows, beside that of the
    identity. The state of a run lies in OUT.state until it is done; --resume goes on from there.
    Under torchrun the text is spread over the processes. --kind refined: mat to the last state,
    then epochs of KL to the model's final distribution on the rows that were fitted; a tenth of
    their texts tells when to stop.
    --json prints the record of the maps.

    \b
        embspace fit
        embspace fit gpt2 --text wiki.txt --pairs all --out gpt2.maps
        embspace fit gpt2 --text wiki.txt --kind refined --out gpt2-refined.maps
        torchrun --nproc-per-node 2 -m embspace fit gpt2 --text wiki.txt
    """
    from embspace.cache import alone
    from embspace.weights.json_files import path_of

    path = path_of(out or default_maps(opening.model))
    if resume and not overwrite and _is_finished(path):
        return _show_finished(path, output)
    _require_room(path, overwrite)
    from embspace.maps.distributed import process_group
    from embspace.maps.fit import fit

    refined = kind == "refined"
    if refined:
        _require_refinable(pairs, parts, text.positions_file, device_map)

    def fitted(group: "Group") -> "Maps":
        model = text.run(opening.open()).with_run(device_map=device_map)
        read = text.read(model, sentences="fit")
        if refined:
            _require_start(model, read, rows)
        with Followed() as bar:
            maps = fit(
                model,
                read,
                pairs=pairs,
                parts=parts,
                kind="mat" if refined else kind,
                ridge=ridge,
                rows=rows,
                products=products,
                until_converged=until_converged,
                state=_state(path),
                resume=resume,
                group=group,
                progress=bar if group.first else None,
                on_check=_told if group.first and until_converged else None,
            )
        return _refined(model, maps, read) if refined and group.first else maps

    with process_group() as group, alone(path) if group.first else nullcontext():
        if group.first:  # a run that held the place until now may have written it
            _require_room(path, overwrite)
        with _told_what_is_kept(path, group):
            maps = fitted(group)
        if not group.first:
            return
        maps.save(path)
        for left in _states(path):
            left.unlink(missing_ok=True)
    output.one(maps)
    say(f"wrote {path}")
    if parts == "blocks":
        score = ["embspace", "score", opening.model, "--maps", str(path)]
        say(f"next: {shlex.join(score)}")


def _is_finished(path: Path) -> bool:
    """Whether maps are there, and nothing that was left behind since."""
    if not path.is_file():
        return False
    written = path.stat().st_mtime_ns
    return all(state.stat().st_mtime_ns <= written for state in _states(path))


def _show_finished(path: Path, output: Output) -> None:
    from embspace.maps.maps import Maps

    output.one(Maps.load(path))
    say(f"{path} is finished: there is nothing to go on with.")


def _told_what_is_kept(path: Path, group: "Group") -> AbstractContextManager[None]:
    """After an interrupt, the first process says what is kept and what to type to go on."""
    again = "the same command with --resume" if group.size > 1 else None
    told = told_what_is_kept(_state(path), lambda: _states(path), again=again)
    return told if group.first else nullcontext()


def _state(path: Path) -> Path:
    return path.with_name(f"{path.name}.state")


def _states(path: Path) -> list[Path]:
    """The state of a fit, or of each process of it."""
    return sorted(path.parent.glob(f"{escape(_state(path).name)}*"))


def _require_refinable(
    pairs: str, parts: str, positions_file: str | None, device_map: str | None
) -> None:
    """Refuse before the fit what could not be refined after it."""
    asked = {
        "--pairs all": pairs != "final",
        "--parts submodules": parts != "blocks",
        "--positions-file": positions_file is not None,
        "--device-map": device_map is not None,
    }
    for option, given in asked.items():
        if given:
            raise click.UsageError(f"--kind refined does not go with {option}.")


def _require_start(model: "Model", text: "Text", rows: int | None) -> None:
    """The same for what the model and the text decide."""
    from embspace.maps.refine import require_refinable
    from embspace.text.splits import split

    require_refinable(model, len(split(text).fit[:rows]))


def _refined(model: "Model", maps: "Maps", text: "Text") -> "Maps":
    from embspace.maps.refine import refine

    with Followed() as bar:
        return refine(model, maps, text, progress=bar)


def _require_room(path: Path, overwrite: bool) -> None:
    """Refuse before long work what could not be written after it."""
    from embspace.cache import require_file
    from embspace.errors import EmbspaceError

    for file in (path, _state(path)):
        require_file(file)
    if path.exists() and not overwrite:
        raise EmbspaceError(f"{path} is there already: give another --out, or --overwrite.")


def _told(check: "Check") -> None:
    say(f"{check.rows} rows: held-out r² {check.r2:.4f}")
