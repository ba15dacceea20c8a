"""The work behind `embspace fit`."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .followed import Followed
from .interrupt import typed_command
from .opening import Opening
from .output import Output
from .terminal import say
from .texts import Reading

if TYPE_CHECKING:
    from embspace.maps.distributed import Group
    from embspace.maps.fit import Check
    from embspace.maps.maps import Maps
    from embspace.text.text import Text
    from embspace.weights.model import Model


def fit_maps(
    opening: Opening,
    output: Output,
    reading: Reading,
    *,
    out: str | None,
    overwrite: bool,
    **how: Any,
) -> None:
    """Fit, keep the file, show r² by pair."""
    from embspace.cache import alone
    from embspace.maps.distributed import process_group
    from embspace.weights.json_files import path_of

    path = path_of(out or default_maps(opening.model))
    if how["resume"] and not overwrite and _is_finished(path):
        return _show_finished(path, output)
    _require_room(path, overwrite)
    if how["kind"] == "refined":
        _require_refinable(how, reading)
    with process_group() as group, alone(path) if group.first else nullcontext():
        if group.first:  # a run that held the place until now may have written it
            _require_room(path, overwrite)
        with _told_of_what_is_kept(path, group):
            maps = _fitted(opening, reading, group, path, **how)
        if not group.first:
            return
        maps.save(path)
        for left in _states(path):
            left.unlink(missing_ok=True)
    output.one(maps)
    say(f"wrote {path}")
    if how["parts"] == "blocks":
        score = ["embspace", "score", opening.model, "--maps", str(path)]
        say(f"next: {shlex.join(score)}")


def default_maps(model: str) -> str:
    """The file that maps of MODEL are kept in, unless another is named: below this folder."""
    return f"{Path(model).name}.maps"


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


@contextmanager
def _told_of_what_is_kept(path: Path, group: "Group") -> Iterator[None]:
    """After an interrupt, say what was kept and what to type to go on."""
    before = {state: state.stat().st_mtime_ns for state in _states(path)}
    try:
        yield
    except KeyboardInterrupt:
        if not group.first:
            raise
        kept = [s for s in _states(path) if s.stat().st_mtime_ns != before.get(s)]
        if kept or (before and "--resume" in typed_command()):
            again = (
                "the same command with --resume" if group.size > 1 else typed_command("--resume")
            )
            say(f"interrupted: what was read is kept in {_state(path)}. To go on:\n    {again}")
        else:
            say("interrupted before a batch was read: nothing was kept.")
        raise


def _fitted(
    opening: Opening, reading: Reading, group: "Group", path: Path, *, kind: str, **how: Any
) -> "Maps":
    """The maps; refined ones in the first process only."""
    from embspace.maps.fit import fit

    model = reading.run(opening.open()).with_run(device_map=how.pop("device_map"))
    text = reading.read(model, sentences="fit")
    refined = kind == "refined"
    if refined:
        _require_start(model, text, how["rows"])
    with Followed() as bar:
        maps = fit(
            model,
            text,
            kind="mat" if refined else kind,  # type: ignore[arg-type]
            state=_state(path),
            group=group,
            progress=bar if group.first else None,
            on_check=_told if group.first and how["until_converged"] else None,
            **how,
        )
    return _refined(model, maps, text) if refined and group.first else maps


def _state(path: Path) -> Path:
    return path.with_name(f"{path.name}.state")


def _states(path: Path) -> list[Path]:
    """The state of a fit, or of each process of it."""
    return sorted(path.parent.glob(f"{escape(_state(path).name)}*"))


def _require_refinable(how: dict[str, Any], reading: Reading) -> None:
    """Refuse before the fit what could not be refined after it."""
    asked = {
        "--pairs all": how["pairs"] != "final",
        "--parts submodules": how["parts"] != "blocks",
        "--positions-file": reading.positions_file is not None,
        "--device-map": how["device_map"] is not None,
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
