"""The paper's classifier: a linear head on every token's last state, averaged. [DAR] §5.2."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor, nn

from ..errors import ModelError
from ..live.capture import capture
from ..live.recorder import states_of
from ..live.running import Running
from ..text.passages import Passage
from ..weights.json_files import check_safetensors, read_json_file
from .accuracy import Accuracy

if TYPE_CHECKING:
    from ..weights.model import Model

RECORD = "classifier.json"
START = "classifier_start.safetensors"  # the head's weight before training, where not zero
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
ZERO = "zero"  # what a record says of a head that began with no weights
KIND = "mean of a linear head's scores over positions"
READS = "residual stream after the last block, before the final norm"


@dataclass(frozen=True)
class Head:
    """A trained classifier's head: scores x W^T + b of every token, averaged; W is labels × d.

    `record` is what its folder says of it: base model, blocks trained, data, accuracies; `start`
    the weight before training, None where the folder does not say.
    """

    weight: Float[Tensor, "labels d"]
    bias: Float[Tensor, "labels"]
    labels: tuple[str, ...]
    record: dict[str, Any] = field(default_factory=dict)
    start: Float[Tensor, "labels d"] | None = None

    @property
    def learned(self) -> Float[Tensor, "labels d"]:
        """What training did to the weight; the weight itself where its start is not known."""
        return self.weight if self.start is None else self.weight - self.start

    @property
    def n_blocks(self) -> int:
        """How many of the last blocks were trained with the head."""
        return int(self.record["blocks_trained"])

    def scores(self, states: Float[Tensor, "n d"]) -> Float[Tensor, "labels"]:
        """Scores of one text from its tokens' last states."""
        return (states @ self.weight.T + self.bias).mean(0)


def is_classifier(folder: Path) -> bool:
    """Whether a model folder holds a fine-tuned classifier."""
    return (folder / RECORD).is_file()


def read_head(model: "Model") -> Head:
    """The head in a fine-tuned folder. Raises ModelError where none is there or fits."""
    path = model.folder / RECORD
    if not path.is_file():
        raise ModelError(
            f"{model.name} is no fine-tuned classifier (no {RECORD} in it): "
            "make one with  embspace finetune."
        )
    record = read_json_file(path)
    labels = _labels(record)
    if not labels or record.get("kind", KIND) != KIND:
        raise ModelError(f"{path} describes no classifier of the kind that is read here.")
    if not _is_count(record.get("blocks_trained"), model.n_layers):
        raise ModelError(f"{path} does not say how many of {model.n_layers} blocks were trained.")
    shape = (len(labels), model.d)
    for name, wanted in ((WEIGHT, shape), (BIAS, shape[:1])):
        found = model.checkpoint.shape(name) if name in model.checkpoint else None
        if found != wanted:
            raise ModelError(f"{model.folder}: {name} is {found}, expected {wanted}.")
        if not bool(torch.isfinite(model.weight(name)).all()):
            raise ModelError(f"{model.folder}: {name} holds NaN or infinity.")
    weight = model.weight(WEIGHT)
    return Head(weight, model.weight(BIAS), labels, record, _start(model, record, weight))


def _start(model: "Model", record: dict[str, Any], weight: Tensor) -> Tensor | None:
    """The weight before training, if the folder says it. Raises ModelError where it cannot be."""
    if record.get("start") == ZERO:
        return torch.zeros_like(weight)
    path = model.folder / START
    if not path.is_file():
        return None
    check_safetensors(path)
    start = load_file(path).get(WEIGHT)
    if start is None or start.shape != weight.shape or not bool(torch.isfinite(start).all()):
        raise ModelError(f"{path} holds no finite {WEIGHT} of the shape {tuple(weight.shape)}.")
    return start.to(weight)


def tested(record: dict[str, Any]) -> tuple[Accuracy, float] | None:
    """(accuracy on the training's test texts, chance) as a record says; None where it does not."""
    test, by_chance = record.get("test"), record.get("chance")
    right, n = (test.get("right"), test.get("n")) if isinstance(test, dict) else (None, None)
    if type(right) is not int or type(n) is not int or not 0 <= right <= n or n < 1:
        return None
    if not isinstance(by_chance, float) or not 0 < by_chance <= 1:
        return None
    return Accuracy(right, n), by_chance


def _labels(record: Any) -> tuple[str, ...]:
    """Two or more different names; none where the record has not these."""
    found = record.get("labels") if isinstance(record, dict) else None
    if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
        return ()
    return tuple(found) if len(found) >= 2 and len(set(found)) == len(found) else ()


def _is_count(n: Any, most: int) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= most


class Classifier(nn.Module):
    """A live model whose last block's output, not normed, is read by a linear head a token.

    Scores of a text: mean over its positions of x W^T + b. W and b start at zero, so that what
    they are after training is what training did.
    """

    def __init__(self, running: Running, n_labels: int) -> None:
        super().__init__()
        self.running, self.live = running, running.module
        like = next(self.live.parameters())
        self.head = nn.Linear(running.model.d, n_labels, device=like.device, dtype=like.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, ids: Int[Tensor, "B T"], mask: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B labels"]:
        """Scores of padded texts; the mask is 1 at real tokens."""
        n = self.running.n_layers
        return averaged(self.head(states_of(self.running, ids, mask, [n])[n]), mask)


def averaged(
    scores: Float[Tensor, "B T labels"], mask: Int[Tensor, "B T"]
) -> Float[Tensor, "B labels"]:
    """Mean over the positions with mask 1."""
    weights = mask.to(scores.dtype)[..., None]
    return (scores * weights).sum(1) / weights.sum(1)


def predictions(
    running: Running,
    passages: Sequence[Passage],
    scores: Callable[[Float[Tensor, "n d"]], Tensor],
) -> list[int]:
    """The label of the highest score for every pass, in their order."""
    found = [0] * len(passages)
    n, dtype = running.n_layers, running.model.dtype
    for states in capture(running, passages, layers=[n], dtype=dtype):
        lines, counts = states.lines.unique_consecutive(return_counts=True)
        for line, part in zip(lines.tolist(), states.layers[n].split(counts.tolist()), strict=True):
            found[line] = int(scores(part).argmax())
    return found
