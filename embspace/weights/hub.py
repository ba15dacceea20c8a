"""Models of the Hub: small files first, then the weight files that are read, through its cache.

A config that cannot be read refuses the model before gigabytes of weights are fetched. The weights
are those of the same commit, and only the files that `Checkpoint` opens. All shards are needed: a
model's fingerprint samples every tensor, and its shapes are compared when it is opened.
"""

import os
from collections.abc import Iterable
from glob import escape
from pathlib import Path

from ..errors import ModelError
from ..messages import first_line
from .json_files import read_json_file
from .tensors import BIN, BIN_INDEX, SAFETENSORS, SAFETENSORS_INDEX

SMALL = ("*.json", "*.txt", "*.model", "tokenizer*")
UNWANTED = ("*/*", "*.onnx*", "*.safetensors", "*.bin")


class HubFolder:
    """The cached snapshot of a repository; raises ModelError where the Hub or its cache lack it.

    folder: where config, tokenizer and shard indices lie, and the weights after `fetch_weights`.
    """

    def __init__(self, repo: str, revision: str | None, unknown: str) -> None:
        """unknown: the sentence that says what a name that is not on the Hub might have been."""
        self.repo, self.unknown, self.asked = repo, unknown, revision
        self.folder = self._fetch(revision, SMALL, UNWANTED)

    def fetch_weights(self) -> None:
        """Fetch what `Checkpoint` will open, in its order of preference, and nothing beside it."""
        for single, index in ((SAFETENSORS, SAFETENSORS_INDEX), (BIN, BIN_INDEX)):
            self._fetch(self.folder.name, [escape(single)])
            if (self.folder / single).is_file():
                return
            if (self.folder / index).is_file():
                self._fetch(self.folder.name, map(escape, sorted(_shards(self.folder / index))))
                return

    def _fetch(self, revision: str | None, wanted: Iterable[str], but: Iterable[str] = ()) -> Path:
        """The snapshot's folder with the wanted files; what the Hub refuses becomes one sentence.

        Offline (HF_HUB_OFFLINE, or no route) it is the cached snapshot as it is.
        """
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HFValidationError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        wanted, but = list(wanted), list(but)
        try:
            return Path(
                snapshot_download(
                    self.repo, revision=revision, allow_patterns=wanted, ignore_patterns=but
                )
            )
        except RevisionNotFoundError as error:
            raise ModelError(
                f"the model {self.repo} has no revision {str(revision)[:80]!r}. "
                f"The Hub says: {first_line(error)}."
            ) from error
        except (HFValidationError, RepositoryNotFoundError) as error:
            raise ModelError(f"{self.unknown} The Hub says: {first_line(error)}.") from error
        except Exception as error:  # offline, no route, timeout, not cached
            why, way_out = unreachable()
            end = f"{way_out} to fetch it, or give its folder."
            if self.asked is None:
                raise ModelError(
                    f"{self.unknown} {why} and its cache holds no such model: {end}"
                ) from error
            raise ModelError(
                f"{why} and its cache holds no revision {self.asked[:80]!r} of {self.repo}: {end}"
            ) from error


def unreachable() -> tuple[str, str]:
    """Why the Hub does not answer, the variable named that forbids to ask it; and what to do."""
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        return "The Hub cannot be reached", "connect once"
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    name = next((name for name in names if os.environ.get(name)), names[0])
    return f"The Hub is not asked ({name} is set)", f"unset {name} once"


def _shards(index: Path) -> set[str]:
    """The shards that an index names; none where it is not readable."""
    try:
        return {str(name) for name in dict(read_json_file(index)["weight_map"]).values()}
    except (ModelError, KeyError, TypeError, ValueError):  # told when the checkpoint is opened
        return set()
