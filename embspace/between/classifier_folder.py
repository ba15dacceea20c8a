"""A fine-tuned classifier as a folder, and a training's saved state: whole or not there."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..cache import read_json, replacing, replacing_folder
from ..errors import EmbspaceError
from ..messages import first_line, quiet
from ..text.text import mark_of
from ..weights.checksum import sealed, unsealed
from .classifier import BIAS, RECORD, WEIGHT, Classifier

if TYPE_CHECKING:
    from ..weights.model import Model

MARKS = "trained_on.json"  # short hashes of the texts, so that nobody scores on them
STATE_END = ".training.safetensors"
TOKENIZER_FILES = (
    *("tokenizer*", "vocab.*", "merges.txt", "*.model", "special_tokens_map.json"),
    *("added_tokens.json", "chat_template*"),
)


def state_file(out: Path) -> Path:
    """Where the state of an unfinished training lies: beside its folder."""
    return out.with_name(out.name + STATE_END)


def check_free(out: Path) -> None:
    """Raise EmbspaceError where a new folder `out` cannot be made."""
    if out.exists():
        raise EmbspaceError(f"{out} is there already: give another name, or remove it.")
    if not out.parent.is_dir():
        raise EmbspaceError(f"{out} cannot be written: there is no folder {out.parent}.")


def check_out(out: Path, *, resume: bool) -> None:
    """The same for a training, and where its saved state is missing or in the way."""
    check_free(out)
    state = state_file(out)
    if resume and not state.is_file():
        raise EmbspaceError(f"there is nothing to resume: no {state}.")
    if not resume and state.exists():
        raise EmbspaceError(
            f"a training of {out} was interrupted: go on with resume=True, or remove {state}."
        )


def save_state(path: Path, tensors: dict[str, Tensor], counts: dict[str, Any]) -> None:
    """One file of tensors and counts, replaced in one step."""
    from safetensors.torch import save_file

    kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
    said = json.dumps(counts)
    with replacing(path) as made:
        save_file(kept, made, metadata={"state": sealed(said, kept)})


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_state` wrote. Raises EmbspaceError for anything else; unpickles nothing."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            entry = (file.metadata() or {})["state"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(unsealed(entry, tensors))
    except (OSError, ValueError, KeyError, RecursionError, SafetensorError) as error:
        raise EmbspaceError(f"{path} is no state of a training: {first_line(error)}.") from error


def save_folder(
    out: Path, model: "Model", classifier: Classifier, record: dict[str, Any], marks: list[str]
) -> None:
    """Weights, head, tokenizer and record; `out` appears when all of it is written.

    Weights are kept in the dtype of the training: steps are smaller than what 16 bits tell apart.
    """
    with replacing_folder(out) as made:
        head = classifier.head
        tensors = {n: t.detach() for n, t in classifier.live.state_dict().items()}
        tensors |= {WEIGHT: head.weight.detach(), BIAS: head.bias.detach()}
        with quiet():
            classifier.live.save_pretrained(made, state_dict=tensors)
        _copy_tokenizer(model.folder, made)
        for name, content in ((RECORD, record), (MARKS, marks)):
            (made / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf8")


def marks(texts: Iterable[str]) -> list[str]:
    """Short hashes of texts, in their order."""
    return [mark_of(text) for text in texts]


def read_marks(model: "Model") -> frozenset[str]:
    """Short hashes of the texts that a classifier was trained on; none where it does not say."""
    found = read_json(model.folder / MARKS)
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def _copy_tokenizer(source: Path, target: Path) -> None:
    """The tokenizer's own files, as they are."""
    for pattern in TOKENIZER_FILES:
        for file in source.glob(pattern):
            if file.is_file():
                shutil.copyfile(file, target / file.name)
