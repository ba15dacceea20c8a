"""`finetune`: a pretrained model becomes the paper's classifier. [DAR] §5.2."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checking import one_of, positive, whole
from ..checking import seed as checked_seed
from ..errors import EmbspaceError
from ..interrupts import held
from ..live.running import run
from ..results import Result
from ..text.labelled import N_TEST, N_TRAIN, Labelled, Split, read_split
from ..weights.json_files import path_of
from ..weights.model import Model
from . import classifier_folder as folder
from .accuracy import Accuracy, chance
from .classifier import BIAS, KIND, READS, RECORD, WEIGHT, ZERO, Classifier, is_classifier
from .classifier_texts import KEEPS, Keep, longest, read_texts
from .trainer import CLIP, Epoch, Example, Trainer

Watch = Callable[[Iterable[None], int], Iterable[None]]
RATE, FAST_RATE, NARROW = 1e-5, 5e-4, 512  # the paper's; for models of less width, which move less
WEIGHT_DECAY = 0.01
PAPER = {"blocks": 3, "epochs": 1, "rate": RATE, "weight_decay": 0.0, "clip": None}
PAPER |= {"matrices_only": True}
PAPER_TEXTS = 3333  # of which 3,000 are trained on; the others are only scored
TRAINED_BY = ("rate", "batch", "patience", "seed", "weight_decay", "clip", "matrices_only")
SAVE_EVERY = 30.0  # seconds between saved states


@dataclass(frozen=True)
class FineTuning(Result):
    """A classifier made from a pretrained model: how it learned, and how often it is right.

    `test` is scored once, with the weights of the epoch that the validation texts chose; `chance`
    is the accuracy of always naming the most frequent label of the test texts.
    """

    folder: str
    labels: tuple[str, ...]
    epochs: tuple[Epoch, ...]
    kept: int
    test: Accuracy
    chance: float
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row an epoch, then one for the test."""
        epochs = [
            {"texts": "validation", "kept": e.number == self.kept} | e.to_dict()
            for e in self.epochs
        ]
        test = {"texts": "test", "kept": True, "epoch": self.kept, "loss": None}
        return [*epochs, test | self.test.to_dict()]


def finetune(
    model: Model,
    data: str | Path | Split,
    out: str | Path,
    *,
    paper: bool = False,
    blocks: int | None = None,
    epochs: int | None = None,
    rate: float | None = None,
    batch: int = 16,
    patience: int = 1,
    n_train: int | None = None,
    n_test: int = N_TEST,
    max_tokens: int | None = None,
    keep: Keep = "start",
    text_column: str | None = None,
    label_column: str | None = None,
    seed: int = 0,
    resume: bool = False,
    watch: Watch | None = None,
) -> FineTuning:
    """Train a linear head on a model's last states, and its last blocks with it; save the folder.

    Scores of a text: mean over its tokens of x_L W^T + b, x_L being state L, not normed. W and b
    start at zero. Only the last blocks and W, b are trained (AdamW, cross-entropy, weight decay
    .01, gradients cut to norm 1); all else stays.

    Args:
        model: The pretrained model.
        data: As in `read_split`.
        out: The folder to write.
        paper: The recipe of [DAR] §5.2 instead: 3 blocks, one epoch over 3,000 texts, rate 1e-5;
            of the blocks and the head only the matrices are trained, no biases and no norms; no
            weight decay, gradients as they are. The paper names neither batch size nor seed, and
            its head's start is not known: ours is zero.
        blocks: How many of the last blocks are trained (3).
        epochs: At most so many (3).
        rate: Of learning; 1e-5, for models narrower than 512 5e-4.
        batch: Texts a step.
        patience: Epochs without a better validation accuracy before it stops; the best epoch's
            weights are kept.
        n_train: Texts to train on, a tenth of which chooses the epoch (3,000).
        n_test: Texts to score on.
        max_tokens: The longest text, by default as long as the model takes.
        keep: Which end of too long a text is read.
        text_column: Of a table.
        label_column: Of a table.
        seed: Of the texts drawn, their order and dropout.
        resume: Go on after an interruption, to the same result; the state is saved as it goes.
        watch: `watch(steps, total)` wraps the steps.

    Raises:
        EmbspaceError: Before any training where `out` is there or cannot be written, or where
            `paper` is given with a setting that it decides.
    """
    out = path_of(str(out))
    chosen = {"blocks": blocks, "epochs": epochs, "rate": rate}
    settings = _settings(model, _recipe(chosen, n_train, paper), batch, patience, seed)
    one_of(keep, KEEPS, "end to keep")
    folder.check_out(out, resume=resume)
    columns = {"text_column": text_column, "label_column": label_column}
    split = data
    if not isinstance(split, Split):
        n_train = PAPER_TEXTS if paper else N_TRAIN if n_train is None else n_train
        split = read_split(split, n_train=n_train, n_test=n_test, seed=seed, **columns)
    settings |= {"max_tokens": max_tokens or longest(model), "keep": keep, "data": split.to_dict()}
    trainer, test, notes = _prepared(model, split, settings)
    identity = settings | {"base_hash": model.provenance["model_hash"]}
    _train(trainer, out, identity, resume, watch)
    trainer.take_best()
    found = FineTuning(
        str(out),
        split.train.names,
        tuple(trainer.epochs),
        trainer.kept.number,
        trainer.score(test),
        chance(split.test.labels),
        settings,
        model.provenance,
        notes,
    )
    trained_on = [*split.train.texts, *split.validation.texts]
    folder.save_folder(out, model, trainer.classifier, _record(found), folder.marks(trained_on))
    folder.state_file(out).unlink(missing_ok=True)
    return found


def _recipe(chosen: dict[str, Any], n_train: int | None, paper: bool) -> dict[str, Any]:
    """How the weights are trained: as the paper does, or as chosen. Raises EmbspaceError."""
    given = {name: value for name, value in chosen.items() if value is not None}
    if not paper:
        ours = {"blocks": 3, "epochs": 3, "weight_decay": WEIGHT_DECAY, "clip": CLIP}
        return {"paper": False, "rate": None, **ours, "matrices_only": False} | given
    given |= {} if n_train is None else {"n_train": n_train}
    if given:
        raise EmbspaceError(f"the paper's recipe decides {', '.join(given)}: leave it out.")
    return {"paper": True, **PAPER}


def _settings(
    model: Model, recipe: dict[str, Any], batch: int, patience: int, seed: int
) -> dict[str, Any]:
    """The numbers, looked at. Raises EmbspaceError."""
    if not isinstance(model, Model):
        raise EmbspaceError(
            f"finetune trains a model, not a {type(model).__name__}: open it with embspace.load."
        )
    blocks, rate = whole(recipe["blocks"], "blocks"), recipe["rate"]
    if not 0 <= blocks <= model.n_layers:
        raise EmbspaceError(f"blocks must be 0 to {model.n_layers}, got {blocks}.")
    if rate is None:
        rate = RATE if model.d >= NARROW else FAST_RATE
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1:
        raise EmbspaceError(f"rate must lie between 0 and 1, got {str(rate)[:40]}.")
    return recipe | {
        "blocks": blocks,
        "epochs": positive(recipe["epochs"], "epochs"),
        "rate": float(rate),
        "batch": positive(batch, "batch"),
        "patience": positive(patience, "patience"),
        "seed": checked_seed(seed),
    }


def _prepared(
    model: Model, split: Split, settings: dict[str, Any]
) -> tuple[Trainer, list[Example], tuple[str, ...]]:
    """The trainer, the test texts as it reads them, and what was cut or left out."""
    sides, n_cut = [], 0
    for side in (split.train, split.validation, split.test):
        examples, n = _examples(model, side, settings)
        sides.append(examples)
        n_cut += n
    classifier = Classifier(run(model, attention="fast"), len(split.train.names))
    trainer = Trainer(
        classifier,
        *sides[:2],
        n_blocks=settings["blocks"],
        n_epochs=settings["epochs"],
        **{name: settings[name] for name in TRAINED_BY},
    )
    return trainer, sides[2], tuple(_notes(model, split, settings, n_cut))


def _examples(model: Model, side: Labelled, settings: dict[str, Any]) -> tuple[list[Example], int]:
    passages, n_cut = read_texts(
        model, side.texts, max_tokens=settings["max_tokens"], keep=settings["keep"]
    )
    return list(zip(passages, side.labels, strict=True)), n_cut


def _train(
    trainer: Trainer, out: Path, identity: dict[str, Any], resume: bool, watch: Watch | None
) -> None:
    """Run the steps, saving the state now and then; what the state belongs to is saved with it."""
    path = folder.state_file(out)
    if resume:
        tensors, counts = folder.load_state(path)
        _check_same(counts.get("identity"), identity, path)
        trainer.restore(tensors, counts["counts"])
    saved = _Saved(path, identity)
    steps = _saving(trainer, saved)
    try:
        for _ in watch(steps, trainer.n_left) if watch else steps:
            pass
    except KeyboardInterrupt:
        if trainer.epochs or trainer.step_in_epoch:
            saved.save(trainer)
        raise


class _Saved:
    """The state of a training on disk, with what it belongs to."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path, self.identity, self.at = path, identity, float("-inf")

    def save(self, trainer: Trainer) -> None:
        """Write it whole; an interrupt waits until it is."""
        with held():
            tensors, counts = trainer.state()
            folder.save_state(self.path, tensors, {"identity": self.identity, "counts": counts})
        self.at = time.monotonic()


def _saving(trainer: Trainer, saved: _Saved) -> Iterator[None]:
    for _ in trainer.steps():
        if time.monotonic() - saved.at > SAVE_EVERY or trainer.step_in_epoch == 0:
            saved.save(trainer)
        yield


def _check_same(saved: Any, asked: dict[str, Any], path: Path) -> None:
    """Raise EmbspaceError, naming what differs, where a state is of another training."""
    if not isinstance(saved, dict):
        raise EmbspaceError(f"{path} is no state of a training.")
    for name, value in asked.items():
        if saved.get(name) != value:
            raise EmbspaceError(
                f"{path} is the state of another training: its {name} is "
                f"{str(saved.get(name))[:120]}, asked for {str(value)[:120]}."
            )


def _record(found: FineTuning) -> dict[str, Any]:
    """What the folder says of its classifier."""
    from ..version import __version__

    settings = dict(found.settings)
    return {
        "kind": KIND,
        "reads": READS,
        "labels": list(found.labels),
        "tensors": [WEIGHT, BIAS],
        "start": ZERO,
        "blocks_trained": settings.pop("blocks"),
        "base": str(found.provenance["model"]),
        "base_revision": found.provenance["revision"],
        "base_hash": found.provenance["model_hash"],
        **settings,
        "accuracy_by_epoch": [epoch.to_dict() for epoch in found.epochs],
        "kept_epoch": found.kept,
        "test": found.test.to_dict(),
        "chance": found.chance,
        "embspace": __version__,
    }


def _notes(model: Model, split: Split, settings: dict[str, Any], n_cut: int) -> Iterator[str]:
    if is_classifier(model.folder):
        yield f"{model.name} is fine-tuned already ({RECORD}): its own head was left out."
    if n_cut:
        yield (
            f"{n_cut} texts were cut to their {settings['keep']}, {settings['max_tokens']} tokens."
        )
    if split.n_dropped:
        yield f"{split.n_dropped} repeated texts were left out."
