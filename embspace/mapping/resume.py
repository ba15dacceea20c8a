"""The state of a fit while it runs: sums so far and how much was read, in one file."""

import json
from pathlib import Path
from typing import Any

from ..cache import replacing
from ..errors import MapsError, ModelError
from ..models.files import check_safetensors
from ..models.messages import first_line
from .sums import Sums

KEY = "embspace_fit"


def save_state(path: Path, sums: dict[str, Sums], done: dict[str, int], identity: str) -> None:
    """Write all sums and the number of batches done of each, whole or not at all."""
    from safetensors.torch import save_file

    tensors = {
        f"{name}.{key}": tensor.contiguous().cpu()
        for name, each in sums.items()
        for key, tensor in each.tensors().items()
    }
    counts = {name: each.n for name, each in sums.items()}
    record = {"identity": identity, "done": done, "rows": counts}
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={KEY: json.dumps(record)})


def load_state(path: Path, sums: dict[str, Sums], identity: str) -> dict[str, int]:
    """Fill the sums from a file; the number of batches done of each.

    Raises MapsError where the file is of another fit: other weights, text or settings.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_safetensors(path)
        file = safe_open(path, framework="pt")
        record: dict[str, Any] = json.loads((file.metadata() or {})[KEY])
        if record["identity"] != identity:
            raise MapsError(
                f"{path} is the state of another fit (other weights, text or settings): delete it, "
                "or leave out --resume."
            )
        for name, each in sums.items():
            tensors = {key: file.get_tensor(f"{name}.{key}") for key in each.tensors()}
            each.load_tensors(tensors, int(record["rows"][name]))
        return {name: int(n) for name, n in record["done"].items()}
    except (OSError, ModelError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise MapsError(f"{path} is no state to go on from: {first_line(error)}.") from error
