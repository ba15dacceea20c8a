"""Options that say through which sides weights are read, and the readings they ask for."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .followed import Followed
from .options import Command
from .terminal import say

if TYPE_CHECKING:
    from embspace.read.reader import ReadableModel
    from embspace.read.reading import Reading

MAT = "mat:"
SOURCES = "embedding, input-embedding, first-mlp, token, mean or mat:FILE"
TARGETS = "embedding or mat:FILE"


@dataclass(frozen=True)
class Through:
    """What was asked for; None where nothing was said."""

    source: str | None
    target: str | None
    centre: bool | None
    unit: bool | None
    common: str | None
    text: str | None

    @property
    def is_asked(self) -> bool:
        """Whether anything was said."""
        return any(value is not None for value in vars(self).values())

    def reading(self, model: "ReadableModel", layer: int, **how: Any) -> "Reading":
        """How a layer is read: as asked, and otherwise as the model's own reading has it.

        how: `norm`, and `inverse` where there is one. Raises EmbspaceError for what will not do.
        """
        how = {
            n: v
            for n, v in how.items()
            if (n, v) not in (("norm", "raw"), ("inverse", "transpose"))
        }
        given = {
            n: v for n, v in vars(self).items() if v is not None and n not in ("source", "target")
        }
        if "common" in given:
            given["common"] = _number(self.common)
        for end in ("source", "target"):
            asked = getattr(self, end)
            if asked is not None:
                given[end] = "mat" if asked.startswith(MAT) else asked
        if "mat" in (given.get("source"), given.get("target")):
            given["maps"] = self._maps(model)
        return model.reading(layer, **given, **how)

    def is_plain(self, model: "ReadableModel") -> bool:
        """Whether rows of E meet the weights as they are, told without measuring anything."""
        from embspace.read.default_reading import has_room

        others = (self.target, self.centre, self.unit, self.common)
        asked = any(value is not None for value in others)
        return not asked and (
            self.source == "embedding" or (not self.source and not has_room(model))
        )

    def rows(self, model: "ReadableModel", filters: tuple[str, ...]) -> int | None:
        """At most how many tokens take part; None for all. Raises VocabularyError for a filter."""
        from embspace.read.reading import COMMON

        mask = model.vocabulary.mask(filters)
        n = len(model.vocabulary) if mask is None else int(mask.sum())
        common = _number(self.common)
        if common is None:
            common = "all" if self.source == "embedding" or self.is_plain(model) else COMMON
        least = n if common == "all" else min(n, common)
        return None if least == len(model.vocabulary) else least

    def prepare(self, model: "ReadableModel", layers: Iterable[int], **how: Any) -> None:
        """Make the tables of states that the readings need, with their size said first."""
        from embspace.read.seen_rows import asked_ids
        from embspace.read.state_table import KINDS, make_state_tables, size_of_tables

        wanted: dict[str, list[int]] = {}
        for layer in layers:
            reading = self.reading(model, layer, **how)
            if reading.source in KINDS:
                wanted.setdefault(reading.source, []).append(layer)
        for kind, some in wanted.items():
            reading = self.reading(model, some[0], **how)
            ids = asked_ids(model, reading)
            size = size_of_tables(model, kind, some, ids, reading.text)
            if size:
                say(f"making {size}, kept in the cache")
                with Followed() as followed:
                    make_state_tables(model, kind, some, ids, reading.text, progress=followed)

    def _maps(self, model: "ReadableModel") -> dict[str, dict[int, Any]]:
        """The fitted maps of either end, by layer, of those that the file holds."""
        from embspace.maps.maps import Maps

        found: dict[str, dict[int, Any]] = {}
        layers = range(model.n_layers)
        for end in ("source", "target"):
            asked = getattr(self, end)
            if asked is None or not asked.startswith(MAT):
                continue
            maps = Maps.load(asked.removeprefix(MAT), model)
            pairs = {l: (0, l) if end == "source" else (l + 1, model.n_layers) for l in layers}
            found[end] = {l: maps[pair] for l, pair in pairs.items() if pair in maps}
        return found


def reading_options(command: Command) -> Command:
    """--source, --target, --centre, --unit, --common and --text; the command gets `through`."""

    @functools.wraps(command)
    def with_through(**given: Any) -> Any:
        mine = {name: given.pop(name) for name in Through.__dataclass_fields__}
        return command(through=Through(**mine), **given)

    for option in reversed(_OPTIONS):
        with_through = option(with_through)
    return with_through


def readings_said(readings: "dict[int, Reading]") -> dict[str, Any]:
    """Settings of a heading: those of most layers, and the layers whose source is another."""
    most = max(readings.values(), key=lambda r: sum(r == other for other in readings.values()))
    others: dict[str, list[int]] = {}
    for layer, reading in readings.items():
        if reading.source != most.source:
            others.setdefault(reading.source, []).append(layer)
    said = [f"{source} in layers {', '.join(map(str, at))}" for source, at in others.items()]
    return most.settings() | {"other_sides": said}


def _number(common: str | None) -> Any:
    if common == "all" or common is None:
        return common
    if not common.isascii() or not common.isdecimal() or int(common) < 1:
        raise click.UsageError(f"--common {common!r}: give a number from 1, or all.")
    return int(common)


def _side(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A side by its name, or maps by their file."""
    names = SOURCES if parameter.name == "source" else TARGETS
    words = names.replace(" or ", ", ").split(", ")
    if value is None or value in words[:-1] or (value.startswith(MAT) and value != MAT):
        return value
    raise click.BadParameter(f"{value!r} is no side: give {names}.")


_OPTIONS = (
    click.option(
        "--source",
        metavar="SIDE",
        callback=_side,
        help=f"What a token looks like to weights that read: {SOURCES} (fitted maps). embedding "
        "alone is the papers' reading.  [default: measured by layer]",
    ),
    click.option(
        "--target", metavar="SIDE", callback=_side, help=f"What raises a token: {TARGETS}."
    ),
    click.option(
        "--centre/--no-centre", default=None, help="Rows less their mean.  [default: by model]"
    ),
    click.option(
        "--unit/--no-unit",
        default=None,
        help="Rows of length one: a circuit's after its thin factor.  [default: by model]",
    ),
    click.option(
        "--common",
        metavar="N",
        help="Only the N most frequent tokens (of --text, else by the vocabulary's order, less "
        "tokens never trained), or all.  [default: 32768, all for the papers' reading]",
    ),
    click.option("--text", metavar="TEXT", help="For mean, and for --common."),
)
