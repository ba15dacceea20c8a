"""Opening MODEL: what it will need is said first, and its reading is proved once."""

import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from embspace.errors import CannotRunError, CertificateError, ModelError, ResourceError
from embspace.weights.aliases import ALIASES, bundled
from embspace.weights.json_files import path_of, read_json_file

from .followed import working
from .interrupt import stop_if_interrupted
from .places import snapshot
from .terminal import say

if TYPE_CHECKING:
    from embspace.memory import Needs
    from embspace.read.reader import ReadableModel

WORTH_SAYING = 5.0  # seconds
MUCH = 2 << 30  # bytes
N_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")  # in configs
FEWER_VECTORS = "measure fewer vectors, or use --dtype float32."  # a way out where memory is short


@dataclass(frozen=True)
class Opening:
    """How to open MODEL."""

    model: str
    revision: str | None
    dtype: str
    device: str
    trust_remote_code: bool
    no_check: bool = False

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise click.UsageError("MODEL is empty: give a name or a folder, or leave it out.")

    def require_layers(self, layers: "Iterable[int] | None") -> None:
        """Refuse a layer that is not there by the config alone, before anything large is imported.

        What is not on this machine, or says its size otherwise, is left to the model itself.
        Raises ModelError.
        """
        try:
            folder = bundled(self.model) or path_of(self.model)
            config = read_json_file(folder / "config.json") if folder.is_dir() else None
        except ModelError:  # opening it says why
            return
        text = config.get("text_config") if isinstance(config, dict) else None
        parts = [part for part in (text, config) if isinstance(part, dict)]
        sizes = (part.get(name) for part in parts for name in N_LAYERS)
        n = next((size for size in sizes if isinstance(size, int)), None)
        for layer in layers or ():
            if n is not None and layer > n:
                raise ModelError(f"layer {layer} does not exist: {self.model} has {n} blocks.")

    def open(
        self, needs: "Callable[[ReadableModel], Needs] | None" = None, way_out: str = ""
    ) -> "ReadableModel":
        """The model, once its memory suffices and its cheap certificate holds.

        `needs` also refuses what does not exist in the model: before the proof, which takes longer.
        Raises EmbspaceError, ResourceError with `way_out` among them.
        """
        from embspace.show.wording import model_name

        model = self.open_unproved()
        model.vocabulary.name = model_name({"model": model.name})  # what messages call it
        needed = needs(model) if needs else None
        if needed:
            needed.require(model.device, way_out=way_out)
        if not self.no_check:
            prove(model)
            stop_if_interrupted()
        if needed:
            announce(needed)
        return model

    @property
    def shows_itself(self) -> bool:
        """Whether the Hub draws bars while it downloads, which a spinner would be in the way of."""
        try:
            here = path_of(self.model).exists() or bundled(self.model) is not None
        except ModelError:  # no such path can be: opening it says why
            here = False
        kept = here or snapshot(ALIASES.get(self.model, self.model))
        return sys.stderr.isatty() and not kept

    def open_unproved(self) -> "ReadableModel":
        """The model as it is. Raises EmbspaceError."""
        with nullcontext() if self.shows_itself else working(f"opening {self.model}"):
            from embspace import load

            model = load(
                self.model,
                revision=self.revision,
                dtype=self.dtype,
                device=self.device,
                trust_remote_code=self.trust_remote_code,
                check=not self.no_check,
            )
        model.proof_due = False  # `open` proves it, and says so
        return model


def prove(model: "ReadableModel") -> None:
    """The cheap certificate; where no forward pass is possible, a line says so."""
    from embspace.live.certificate import require

    try:
        with working("checking the reading against a forward pass"):
            require(model)
    except (ResourceError, CannotRunError) as error:
        say(f"note: read without proof, because a forward pass is not possible: {error}")
    except CertificateError as error:
        raise CertificateError(f"{error} (--no-check reads it anyway)") from error


def announce(needed: "Needs") -> None:
    """Say what long or large work will take."""
    from embspace.memory import gigabytes

    if needed.seconds >= WORTH_SAYING or needed.peak >= MUCH:
        took = f"{duration(needed.seconds)} plus loading"
        say(f"needs up to {gigabytes(needed.peak)} of memory and {took}")


def duration(seconds: float) -> str:
    """An order of magnitude, in words."""
    if seconds < 2:
        return "about a second"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
