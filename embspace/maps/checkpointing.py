"""The state of a fit while it runs: sums so far and how much was read, in one file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..cache import replacing
from ..errors import MapsError, ModelError
from ..messages import first_line
from ..weights.checksum import sealed, unsealed
from ..weights.json_files import check_safetensors
from .sums import Sums

KEY = "embspace_fit"
NO_RECORD = (KeyError, ValueError, TypeError, AttributeError, RecursionError, OverflowError)


def save_state(
    path: Path,
    sums: dict[str, Sums],
    done: dict[str, int],
    identity: str,
    checks: Sequence[tuple[int, float]] = (),
) -> None:
    """Write all sums, the number of batches done of each and the (rows, r²) judged so far; whole or
    not at all."""
    from safetensors.torch import save_file

    tensors = {
        f"{name}.{key}": tensor.contiguous().cpu()
        for name, each in sums.items()
        for key, tensor in each.tensors().items()
    }
    counts = {name: each.n for name, each in sums.items()}
    record = {"identity": identity, "done": done, "rows": counts, "checks": list(checks)}
    said = json.dumps(record)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={KEY: sealed(said, tensors)})


def load_state(
    path: Path, sums: dict[str, Sums], identity: str
) -> tuple[dict[str, int], list[tuple[int, float]]]:
    """Fill the sums from a file; the number of batches done of each, and what was judged.

    Raises MapsError where the file is of another fit: other weights, text or settings.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_safetensors(path)
        file = safe_open(path, framework="pt")
        entry = (file.metadata() or {})[KEY]
        saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        record: dict[str, Any] = json.loads(unsealed(entry, saved))
        if record["identity"] != identity:
            raise MapsError(
                f"{path} is the state of another fit (other weights, text or settings): delete it, "
                "or leave out resume=True."
            )
        for name, each in sums.items():
            tensors = {key: saved[f"{name}.{key}"] for key in each.tensors()}
            each.load_tensors(tensors, int(record["rows"][name]))
        done = {name: int(n) for name, n in record["done"].items()}
        return done, [(int(rows), float(r2)) for rows, r2 in record["checks"]]
    except (OSError, ModelError, SafetensorError, *NO_RECORD) as error:
        raise MapsError(f"{path} is no state to go on from: {first_line(error)}.") from error
