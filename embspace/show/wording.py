"""Words and numbers as all reports write them."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from ..estimate import Estimate

WIDEST = 80  # cells of a label that a table shows; exports keep all of it


def shown(text: Any) -> str:
    """Text of unknown origin on one line: what cannot be printed becomes an escape."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )


def clipped(text: str, cells: int = WIDEST) -> str:
    """Text of at most so many cells, its cut end marked."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text[:cells], cells - 1).rstrip() + "…"


def joined(*parts: str) -> str:
    """The parts that say something, with a dot between them."""
    return " · ".join(part for part in parts if part)


def model_name(provenance: Mapping[str, Any]) -> str:
    """The model's name for a title: a folder's own name, a Hub name whole."""
    name = str(provenance.get("model", "model"))
    path = PurePath(name)
    short = path.name if path.is_absolute() or name.startswith((".", "~")) else name
    return shown(short or name)


def origin(
    provenance: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """One line that says which weights were read, in which arithmetic, and how the model was run.

    settings: of a result that ran the model, with `run_dtype` and `batch_tokens`.
    """
    if not provenance:
        return ()
    revision = provenance.get("revision")
    parts = [
        f"weights {provenance.get('model_hash')}",
        f"revision {shown(revision)}" if revision else "",
        f"stored as {provenance.get('stored_dtype')}, read in {provenance.get('dtype')}",
        f"run in {dtype}" if (dtype := (settings or {}).get("run_dtype")) else "",
        f"{batch} tokens a batch" if (batch := (settings or {}).get("batch_tokens")) else "",
    ]
    return (", ".join(part for part in parts if part) + ".",)


def origins(provenance: Mapping[str, Any], **names: str) -> tuple[str, ...]:
    """The lines of several models, given by their part: `a="gpt2"` for `provenance["a"]`."""
    return tuple(f"{name}: {line}" for of, name in names.items() for line in origin(provenance[of]))


_SAME = {
    True: "no pairs of a token with itself",
    "word": "no pairs of one word (case and word start aside)",
}


def settings_line(settings: Mapping[str, Any]) -> str:
    """How a result was found, in words: norms, inverse, filters, distance."""
    filters = ", ".join(map(shown, settings.get("filters") or ()))
    distance = settings.get("distance")
    return joined(
        _sides(settings),
        f"{settings.get('norm', 'raw')} norms",
        "pseudo-inverse" if settings.get("inverse") == "pinv" else "",
        f"relative distance {distance}" if distance is not None else "",
        f"filter {filters}" if filters else "",
        _SAME.get(settings.get("exclude_same", False), ""),
    )


def _sides(settings: Mapping[str, Any]) -> str:
    """Through which sides weights were read, where not as in the papers."""
    source, common = settings.get("source_side"), settings.get("common", "all")
    if source is None:
        return ""
    said = [f"{source} → {settings['target_side']}", *settings.get("other_sides", ())]
    said += ["centred"] * settings["centre"] + ["unit rows"] * settings["unit"]
    said += ["through the reading norm"] * settings["reading_norm"]
    return ", ".join([*said, "all tokens" if common == "all" else f"{common:,} common tokens"])


def taken_line(settings: Mapping[str, Any]) -> str:
    """How positions of a text were chosen."""
    skipped = settings.get("skip_first")
    return joined(
        f"positions {settings.get('positions')}",
        f"first {skipped} tokens never taken" if skipped else "",
        f"seed {settings.get('seed')}",
    )


def hashed_text(settings: Mapping[str, Any]) -> str:
    """A text's name and the hash of its lines."""
    return f"{shown(settings.get('text'))} (hash {settings.get('text_hash')})"


def span(ends: tuple[float | None, float | None] | None, form: str = ".3f") -> str:
    """`0.912 … 0.956`, the ends of a 95 % interval; nothing where there is none."""
    low, high = ends or (None, None)
    return "" if low is None or high is None else f"{low:{form}} … {high:{form}}"


def ends(estimate: "Estimate") -> tuple[float | None, float | None]:
    """The ends of an estimate's interval, for `span`."""
    return estimate.low, estimate.high


def written(value: float | None, form: str) -> str:
    """A number as `form` says; nothing where there is none."""
    return "" if value is None else f"{value:{form}}"


def size(n_bytes: int) -> str:
    """Bytes in the unit that leaves few digits."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= each:
            return f"{n_bytes / each:.1f} {unit}"
    return f"{n_bytes} B"
