"""The training loop, a step at a time, whose state can be saved and taken up at any of them."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import EmbspaceError
from ..interrupts import held
from ..live.capture import padded
from ..text.passages import Passage
from .accuracy import Accuracy, accuracy
from .classifier import Classifier, predictions
from .classifier_texts import padding

SORTED = 16  # batches' worth of texts that are sorted by length together
CLIP = 1.0  # largest norm of the gradient, by default
Example = tuple[Passage, int]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training texts: mean loss (nats), accuracy on the validation texts."""

    number: int
    loss: float
    right: int
    n: int

    @property
    def validation(self) -> Accuracy:
        """Accuracy on the texts that choose the epoch."""
        return Accuracy(self.right, self.n)

    def to_dict(self) -> dict[str, Any]:
        """Number, loss, validation accuracy with its interval."""
        return {"epoch": self.number, "loss": self.loss, **self.validation.to_dict()}


class Trainer:
    """Trains the last blocks and the head of a classifier, and keeps the best epoch's weights.

    Everything random follows from the seed and the count of steps, so that a training taken up
    from `state()` goes on exactly as one that was never interrupted.
    """

    def __init__(
        self,
        classifier: Classifier,
        train: list[Example],
        validation: list[Example],
        *,
        n_blocks: int,
        n_epochs: int,
        rate: float,
        batch: int,
        patience: int,
        seed: int,
        weight_decay: float,
        clip: float | None = CLIP,
        matrices_only: bool = False,
    ) -> None:
        self.classifier, self.train, self.validation = classifier, train, validation
        self.n_epochs, self.batch, self.patience, self.seed = n_epochs, batch, patience, seed
        self.clip = math.inf if clip is None else clip
        self.blocks = _frozen(classifier, n_blocks, matrices_only)
        self.parameters = {n: p for n, p in classifier.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=rate, weight_decay=weight_decay
        )
        self.epochs: list[Epoch] = []
        self.best: dict[str, Tensor] = {}
        self.step_in_epoch, self.loss_sum = 0, 0.0

    @property
    def steps_an_epoch(self) -> int:
        """How many batches the training texts make."""
        return -(-len(self.train) // self.batch)

    @property
    def n_left(self) -> int:
        """Steps to the end, if it is not reached early."""
        left = self.n_epochs - len(self.epochs)
        return max(0, left * self.steps_an_epoch - self.step_in_epoch)

    @property
    def kept(self) -> Epoch:
        """The epoch with the best validation accuracy, the first of equals."""
        return max(self.epochs, key=lambda epoch: (epoch.right, -epoch.number))

    @property
    def stopped(self) -> bool:
        """Whether so many epochs in a row as `patience` says brought nothing better."""
        return bool(self.epochs) and len(self.epochs) - self.kept.number >= self.patience

    def steps(self) -> Iterator[None]:
        """Train to the end or until nothing gets better, yielding after every step."""
        while len(self.epochs) < self.n_epochs and not self.stopped:
            batches = self._batches(len(self.epochs))
            epoch = len(self.epochs)
            while len(self.epochs) == epoch:
                if self.step_in_epoch < len(batches):
                    self._step(batches[self.step_in_epoch])
                if self.step_in_epoch == len(batches):  # also where an interrupt came in between
                    self._finish_epoch()
                yield

    def _step(self, batch: list[int]) -> None:
        done = len(self.epochs) * self.steps_an_epoch + self.step_in_epoch
        self._mode(training=True)
        with _own_randomness(self.seed * 1_000_003 + done, self.device):
            scores = self.classifier(*self._padded([self.train[i][0] for i in batch]))
            truth = torch.tensor([self.train[i][1] for i in batch], device=self.device)
            loss = functional.cross_entropy(scores, truth)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters.values(), self.clip)
            value = float(loss.detach())
            if not math.isfinite(value):
                raise EmbspaceError(
                    f"the loss is {value} in epoch {len(self.epochs) + 1}: nothing was learned; "
                    "take a smaller rate."
                )
            with held():  # weights, moments and counts move together, or `state` is of no step
                self.optimizer.step()
                self.loss_sum += value * len(batch)
                self.step_in_epoch += 1

    def _finish_epoch(self) -> None:
        right = self.score(self.validation)
        loss = self.loss_sum / len(self.train)
        with held():
            self.epochs.append(Epoch(len(self.epochs) + 1, loss, right.right, right.n))
            if self.kept is self.epochs[-1]:
                self.best = {name: p.detach().clone() for name, p in self.parameters.items()}
            self.step_in_epoch, self.loss_sum = 0, 0.0

    def score(self, examples: list[Example]) -> Accuracy:
        """Accuracy of the weights as they are now."""
        self._mode(training=False)
        head = self.classifier.head
        passages = [Passage(p.ids, p.keep, line) for line, (p, _) in enumerate(examples)]
        with torch.no_grad():
            found = predictions(self.classifier.running, passages, lambda x: head(x).mean(0))
        return accuracy(found, [label for _, label in examples])

    def take_best(self) -> None:
        """Put the kept epoch's weights in place."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(self.best[name])

    # state -------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and counts from which `restore` goes on."""
        tensors = {f"now.{name}": p.detach() for name, p in self.parameters.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"adam.{key}.{name}"] = torch.as_tensor(value)
        counts = {"step_in_epoch": self.step_in_epoch, "loss_sum": self.loss_sum}
        return tensors, counts | {"epochs": [asdict(epoch) for epoch in self.epochs]}

    def restore(self, tensors: dict[str, Tensor], counts: dict[str, Any]) -> None:
        """Go on from a saved state. Raises EmbspaceError where it is of another model."""
        try:
            with torch.no_grad():
                for name, parameter in self.parameters.items():
                    parameter.copy_(tensors[f"now.{name}"])
                    self.optimizer.state[parameter] = self._moments(tensors, name)
            self.epochs = [Epoch(**epoch) for epoch in counts["epochs"]]
            self.step_in_epoch, self.loss_sum = counts["step_in_epoch"], counts["loss_sum"]
        except (KeyError, TypeError, RuntimeError) as error:
            raise EmbspaceError("the saved state does not fit this training.") from error
        ends = {name: tensors.get(f"best.{name}") for name in self.parameters}
        self.best = {name: tensor for name, tensor in ends.items() if tensor is not None}

    def _moments(self, tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """What the optimizer knew of a parameter; it counts its steps on the CPU."""
        places = {"step": torch.device("cpu"), "exp_avg": self.device, "exp_avg_sq": self.device}
        return {
            key: tensors[f"adam.{key}.{name}"].to(place)
            for key, place in places.items()
            if f"adam.{key}.{name}" in tensors
        }

    # parts -------------------------------------------------------------------------------
    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.classifier.head.weight.device

    def _padded(self, passages: list[Passage]) -> list[Tensor]:
        model = self.classifier.running.model
        return [part.to(self.device) for part in padded(passages, padding(model))]

    def _mode(self, *, training: bool) -> None:
        """Dropout, if the model has any, in the trained blocks only."""
        self.classifier.eval()
        for block in self.blocks:
            block.train(training)

    def _batches(self, epoch: int) -> list[list[int]]:
        """Numbers of the texts in each batch: similar lengths together, all else by chance."""
        rng = random.Random(f"{self.seed} {epoch}")
        order = rng.sample(range(len(self.train)), len(self.train))
        chunk = self.batch * SORTED
        parts = [
            sorted(order[at : at + chunk], key=lambda i: -len(self.train[i][0].ids))
            for at in range(0, len(order), chunk)
        ]
        line = [i for part in parts for i in part]
        found = [line[at : at + self.batch] for at in range(0, len(line), self.batch)]
        return rng.sample(found, len(found))


def _frozen(classifier: Classifier, n_blocks: int, matrices_only: bool) -> list[nn.Module]:
    """Freeze everything but the head and the last blocks (or their matrices); these blocks."""
    running = classifier.running
    classifier.requires_grad_(False)
    blocks = [running.block(l) for l in range(running.n_layers - n_blocks, running.n_layers)]
    for part in (*blocks, classifier.head):
        for parameter in part.parameters():
            parameter.requires_grad_(parameter.ndim > 1 or not matrices_only)
    return blocks


@contextmanager
def _own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers from a seed of their own while it lasts; the others go on as before."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed % 2**63)
        yield
