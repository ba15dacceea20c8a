"""Reading: through which sides, and how, weights are read in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..checking import one_of, positive
from ..errors import EmbspaceError
from ..notation import INVERSES, NORMS, Inverse, Norm

Source = Literal["embedding", "input-embedding", "first-mlp", "token", "mean", "mat"]
Target = Literal["embedding", "mat"]
SOURCES: tuple[str, ...] = (
    *("embedding", "input-embedding", "first-mlp"),
    *("token", "mean", "mat"),
)
TARGETS: tuple[str, ...] = ("embedding", "mat")
ALL = "all"
COMMON = 32768  # tokens that a reading takes unless told otherwise; more cost time, and add stubs


@dataclass(frozen=True)
class Reading:
    """Through which sides weights are read, and how; `Reading()` is the papers' own.

    A source side says what a token looks like to weights that read it, a target side which
    direction raises a token. Keys and W_V, W_Q, W_K are read through the source, values and W_O
    through the target.

    Args:
        source: `embedding` (E, the papers'), `input-embedding` (of an untied head), `first-mlp`
            (what the first feed-forward layer makes of the input embedding, which is itself the
            side in block 0 [Elhelo & Geva 2024]), `token` (the state of a token read alone),
            `mean` (its mean state over the text), `mat` (the input embedding through `maps`).
        target: `embedding` (E), or `mat` (E through `maps`).
        norm: "folded" multiplies the norms' gains in, the final norm's into the target.
        inverse: how E is inverted on sides that read; "pinv" goes with `embedding` only.
        centre: rows less their mean over the tokens that take part.
        unit: rows of length one. A circuit's are the d_h wide rows that are multiplied, after its
            thin factor; those of a single vector are d wide.
        reading_norm: source rows through the norm by which the block reads them, gain and shift.
        common: how many tokens take part, the most frequent first; "all" for every row.
        text: sentences for `mean`, and by which `common` counts; without, the order of the
            vocabulary, less tokens that were never trained (`common_tokens`).
        maps: for `mat`: {"source": …, "target": …}, each layer -> (d × d): from state 0 to the
            state that the layer reads, and from what it writes to the last state.

    Raises:
        EmbspaceError: for a side, norm or number that does not exist or does not go with another.

    Example:
        >>> Reading(source="first-mlp", centre=True, unit=True).name
        'first-mlp → embedding, centred, unit rows'
    """

    source: Source = "embedding"
    target: Target = "embedding"
    norm: Norm = "raw"
    inverse: Inverse = "transpose"
    centre: bool = False
    unit: bool = False
    reading_norm: bool = False
    common: int | Literal["all"] = ALL
    text: Any = field(default=None, compare=False)
    maps: "Mapping[str, Mapping[int, Tensor]] | None" = field(default=None, compare=False)

    def __post_init__(self) -> None:
        one_of(self.source, SOURCES, "source")
        one_of(self.target, TARGETS, "target")
        one_of(self.norm, NORMS, "norm")
        one_of(self.inverse, INVERSES, "inverse")
        for name in ("centre", "unit", "reading_norm"):
            if not isinstance(getattr(self, name), bool):
                raise EmbspaceError(f"{name}: expected True or False, got {getattr(self, name)!r}.")
        if self.common != ALL:
            object.__setattr__(self, "common", positive(self.common, "common"))
        if self.inverse == "pinv" and self.source != "embedding":
            raise EmbspaceError("the pseudo-inverse is of E: it goes with source='embedding' only.")
        if self.source == "mean" and self.text is None:
            raise EmbspaceError("source='mean' is over a text: give text=FILE or sentences.")
        for end in ("source", "target"):
            if getattr(self, end) == "mat" and not (self.maps or {}).get(end):
                raise EmbspaceError(
                    f"{end}='mat' reads through fitted maps: give maps={{'{end}': {{layer: A}}}}."
                )

    @property
    def is_plain(self) -> bool:
        """Whether rows of E meet the weights as they are, as in the papers."""
        return self == Reading(norm=self.norm, inverse=self.inverse)

    @property
    def name(self) -> str:
        """The sides and options in words, norms aside."""
        said = [f"{self.source} → {self.target}"]
        said += ["centred"] * self.centre + ["unit rows"] * self.unit
        said += ["through the reading norm"] * self.reading_norm
        return ", ".join(said)

    def but(self, **changes: Any) -> "Reading":
        """This reading with some settings changed. Raises TypeError for an unknown one."""
        return replace(self, **changes) if changes else self

    def map(self, end: str, layer: int, like: Tensor) -> Tensor | None:
        """The fitted map (d × d) of an end at a layer; None where that end has none."""
        if getattr(self, end) != "mat":
            return None
        found = (self.maps or {})[end].get(layer)
        if found is None:
            raise EmbspaceError(f"no map was given for the {end} of layer {layer}.")
        found = torch.as_tensor(found).to(like)
        if found.shape != (like.shape[-1], like.shape[-1]):
            raise EmbspaceError(
                f"the {end}'s map of layer {layer} is {tuple(found.shape)}, expected a square one "
                f"of {like.shape[-1]}."
            )
        return found

    def settings(self) -> dict[str, Any]:
        """What a result records of it; of the papers' reading only norm and inverse."""
        found: dict[str, Any] = {"norm": self.norm, "inverse": self.inverse}
        if not self.is_plain:
            found |= {"source_side": self.source, "target_side": self.target}
            names = ("centre", "unit", "reading_norm", "common")
            found |= {name: getattr(self, name) for name in names}
        return found


PAPERS = Reading()
