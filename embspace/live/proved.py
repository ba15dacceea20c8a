"""ProvedModel: a Model that is proved by a forward pass before its first number."""

import warnings
from functools import cached_property
from typing import Any

from ..errors import CannotRunError, CertificateError, ResourceError
from ..weights.model import Model
from .certificate import require
from .running import skeleton

SIZES = ("max_position_embeddings", "n_positions", "max_seq_len")
TABLED = ("gptj", "mpt")  # positions computed, but into a table of fixed length


class ProvedModel(Model):
    """A checkpoint's weights, which the live model proves and whose longest text it knows."""

    def require_proof(self) -> None:
        """Prove the reading, or take its kept proof, before the first number; once a model.

        Warns where no forward pass is possible.

        Raises:
            ModelError: A tensor is missing, or there is none of its place.
            CertificateError: The reading does not rebuild the model's own outputs.
        """
        if not self.proof_due:
            return
        self.proof_due = False  # what the proof itself reads needs none
        try:
            require(self)
        except (ResourceError, CannotRunError) as error:
            warnings.warn(
                f"{self.name} is read without proof, because a forward pass is not possible: "
                f"{error}",
                stacklevel=3,
            )
        except BaseException as error:
            self.proof_due = True
            if isinstance(error, CertificateError):
                raise CertificateError(f"{error} load(…, check=False) reads it anyway.") from error
            raise

    @cached_property
    def n_positions(self) -> int | None:
        """Tokens of the longest text, special ones included.

        None where there is no end (ALiBi) or only a trained length (rotary). Embeddings that count
        positions from their padding id on (RoBERTa and its kind) take fewer than their table has
        rows: that is asked of transformers' own module, built without weights.

        Raises:
            CannotRunError: Transformers has no class for the model.
        """
        config: Any = self.config
        n = next((n for name in SIZES if (n := getattr(config, name, None))), None)
        ends = self.family.positions in ("learned", "relative") or config.model_type in TABLED
        if not ends or not isinstance(n, int):
            return None
        return n - _first_position(self)


def _first_position(model: Model) -> int:
    """The row of the position table that a text's first token gets: after the padding id, or 0."""
    for name, table in skeleton(model).named_modules():
        padding = getattr(table, "padding_idx", None)
        if name.rpartition(".")[2] == "position_embeddings" and padding is not None:
            return int(padding) + 1
    return 0
