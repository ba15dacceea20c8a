"""Stitched: the first blocks of one model, a kernel, the last blocks and the head of another."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..cache import replacing_folder
from ..checking import index
from ..errors import ModelError
from ..live.capture import padded
from ..live.opening import open_model
from ..live.recorder import states_of
from ..live.running import Running, run
from ..live.tail import Tail
from ..messages import first_line
from ..weights.checksum import seal
from ..weights.json_files import check_safetensors, path_of, read_json_file
from ..weights.model import Model
from .carrying import Carrying, positions_of, scale_between
from .classifier import Head, averaged, read_head
from .classifier_folder import check_free
from .classifier_texts import Keep, longest, padding, read_texts
from .shared_tokens import shared_tokens
from .stitch_kernel import Kind, kernel

RECORD, TENSORS = "stitched.json", "kernel.safetensors"
SEAL = "seal"  # of the record and the kernel, in the latter's metadata
WHAT = "state of A after its kept blocks, times the kernel, into B's last blocks and classifier"
AT_ONCE = 16  # texts of a batch
UNSCALED = Carrying(match_scale=False)


class Stitched(nn.Module):
    """State a of A, times K (d_A × d_B), into the last b blocks and the classifier of B.

    Texts are read by A's tokenizer; B never sees them. Nothing is trained. `matrix` is K as it is
    used, scaled already where it is to be; of `carry` the norm and the positions. [DAR] §5.2.
    """

    kernel: Tensor

    def __init__(
        self,
        a: Running,
        b: Running,
        matrix: Float[Tensor, "d_A d_B"],
        *,
        n_kept: int,
        n_transplanted: int,
        head: Head | None = None,
        carry: Carrying = UNSCALED,
    ) -> None:
        super().__init__()
        self.a, self.b, self.first, self.carry = a, b, a.module, carry
        self.head = read_head(b.model) if head is None else head
        self.n_kept = index(n_kept, a.n_layers + 1, "count of kept blocks")
        self.tail = Tail(b, n_transplanted)
        if tuple(matrix.shape) != (a.model.d, b.model.d):
            raise ModelError(
                f"the kernel is {tuple(matrix.shape)}, expected ({a.model.d}, {b.model.d})."
            )
        self.register_buffer("kernel", matrix.to(b.model.device, b.model.dtype))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the scores' columns."""
        return self.head.labels

    def forward(
        self, ids: Int[Tensor, "B T"], mask: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B labels"]:
        """Scores of padded texts in A's token ids; the mask is 1 at real tokens (default all)."""
        mask = torch.ones_like(ids) if mask is None else mask
        return self.scores(states_of(self.a, ids, mask, [self.n_kept])[self.n_kept], mask)

    def scores(
        self, states: Float[Tensor, "B T d_A"], mask: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B labels"]:
        """The same from A's states."""
        carried = self.carry.before(self.a, states).to(self.kernel) @ self.kernel
        if self.carry.positions:
            carried = carried + positions_of(self.b, carried.shape[1]).to(carried)
        last = self.tail(carried, mask)
        return averaged(last @ self.head.weight.T + self.head.bias, mask)

    def classify(
        self, texts: Sequence[str], *, max_tokens: int | None = None, keep: Keep = "start"
    ) -> list[str]:
        """The label of every text. Raises TextError for texts that A cannot read."""
        model = self.a.model
        length = max_tokens or longest(model, self.b.model)
        passages, _ = read_texts(model, texts, max_tokens=length, keep=keep)
        found: list[int] = []
        for start in range(0, len(passages), AT_ONCE):
            batch = padded(passages[start : start + AT_ONCE], padding(model))
            with torch.no_grad():
                found += self(*(part.to(model.device) for part in batch)).argmax(1).tolist()
        return [self.labels[label] for label in found]

    def save(self, folder: str | Path) -> None:
        """Write kernel and record; both models stay where they are, known by name and hash.

        Raises EmbspaceError where the folder is there already or cannot be written.
        """
        from safetensors.torch import save_file

        out = path_of(str(folder))
        check_free(out)
        record = {
            "kind": WHAT,
            "a": self.a.model.provenance,
            "b": self.b.model.provenance,
            "carry": self.carry.to_dict(),
            "kept_blocks": self.n_kept,
            "transplanted_blocks": self.tail.n,
            "labels": list(self.labels),
        }
        said = json.dumps(record, indent=2) + "\n"
        tensors = {"kernel": self.kernel.contiguous()}
        with replacing_folder(out) as made:
            save_file(tensors, made / TENSORS, metadata={SEAL: seal(said, tensors)})
            (made / RECORD).write_text(said, encoding="utf8")


def stitched(
    a: Model,
    b: Model,
    *,
    n_kept: int,
    n_transplanted: int | None = None,
    kind: Kind = "pinv",
    carry: Carrying | None = None,
) -> Stitched:
    """The first `n_kept` blocks of A and the last ones of the fine-tuned B as one classifier.

    `n_transplanted`: by default the blocks of B that were trained; `carry`: see `Carrying`.
    Raises EmbspaceError.
    """
    carry = carry or Carrying()
    head = read_head(b)
    shared = shared_tokens(a.vocabulary, b.vocabulary)
    matrix = kernel(a.vocabulary, b.vocabulary, shared, kind).matrix
    n = head.n_blocks if n_transplanted is None else n_transplanted
    first, last = (run(model, attention="fast") for model in (a, b))
    matrix = matrix * scale_between(first, last, matrix, shared, carry)
    return Stitched(first, last, matrix, n_kept=n_kept, n_transplanted=n, head=head, carry=carry)


def load_stitched(folder: str | Path, *, device: str = "cpu") -> Stitched:
    """What `Stitched.save` wrote, with both models opened by name.

    Raises ModelError where the folder is none of ours, or a model has other weights by now.
    """
    path = path_of(str(folder))
    record = read_json_file(path / RECORD)
    if not isinstance(record, dict) or record.get("kind") != WHAT:
        raise ModelError(f"{path} holds no stitched model.")
    try:
        a, b = (_same(record[side], device) for side in ("a", "b"))
        matrix = _kernel(path)
        counts = {"n_kept": record["kept_blocks"], "n_transplanted": record["transplanted_blocks"]}
        carry = Carrying(**record["carry"]) if "carry" in record else UNSCALED
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ModelError(f"{path} holds no whole stitched model: {first_line(error)}.") from error
    return Stitched(
        run(a, attention="fast"), run(b, attention="fast"), matrix, **counts, carry=carry
    )


def _kernel(path: Path) -> Tensor:
    """The kernel of a folder that nobody changed. Raises what safetensors does, or ValueError."""
    check_safetensors(path / TENSORS)
    with safe_open(path / TENSORS, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        said = (path / RECORD).read_text(encoding="utf8")
        if (file.metadata() or {}).get(SEAL) != seal(said, tensors):
            raise ValueError("it was changed after it was written, or damaged")
    return tensors["kernel"]


def _same(was: dict[str, Any], device: str) -> Model:
    """One of the two models. Raises ModelError where its weights are others than they were."""
    model = open_model(was["model"], revision=was["revision"], dtype=was["dtype"], device=device)
    if model.provenance["model_hash"] != was["model_hash"]:
        raise ModelError(
            f"{was['model']} has other weights ({model.provenance['model_hash']}) than those "
            f"that were stitched ({was['model_hash']})."
        )
    return model
