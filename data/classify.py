"""The review classifier of Dar et al. 2022, section 5.2: a linear head a token, averaged."""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoTokenizer, GPT2LMHeadModel, PreTrainedTokenizerFast

from .generate import LABELS
from .saving import save_sample, sha256

logger = logging.getLogger(__name__)

Labelled = list[tuple[str, str]]
N_BLOCKS = 3


class ReviewClassifier(nn.Module):
    """A GPT-2 whose stream after the last block, not normed, is read by a linear head a token."""

    def __init__(self, model: GPT2LMHeadModel):
        super().__init__()
        self.model = model
        self.classifier = nn.Linear(model.config.n_embd, len(LABELS))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return (batch, label) scores: the head's scores averaged over the unmasked positions."""
        transformer = self.model.transformer
        kept: list[Tensor] = []
        # The stream before the final norm is the input of that norm, wherever the library puts it.
        hook = transformer.ln_f.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
        transformer(tokens, attention_mask=mask, use_cache=False)
        hook.remove()
        scores = self.classifier(kept[0])
        return (scores * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def read_reviews(folder: Path) -> Labelled:
    """Read `pos/*.txt` and `neg/*.txt`, the layout of the Large Movie Review Dataset."""
    names = {"pos": "positive", "neg": "negative"}
    return [
        (file.read_text("utf-8", "replace"), label)
        for name, label in names.items()
        for file in sorted((folder / name).glob("*.txt"))
    ]


def windows(
    texts: Labelled, tokenizer: PreTrainedTokenizerFast, length: int, most: int
) -> list[tuple[list[int], int, int]]:
    """Cut texts into at most `most` windows of `length` tokens: (tokens, label, text number)."""
    found = []
    for number, (text, label) in enumerate(texts):
        tokens = tokenizer(text)["input_ids"]
        starts = range(0, max(1, len(tokens) - length // 2), length)
        # Reviewers judge at the end: of a long review the last windows are the ones to keep.
        for start in list(starts)[-most:]:
            found.append((tokens[start : start + length], LABELS.index(label), number))
    return found


def _batch(rows: list[tuple[list[int], int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded tokens, their mask and the labels."""
    longest = max(len(tokens) for tokens, _, _ in rows)
    tokens = torch.tensor([row[0] + [0] * (longest - len(row[0])) for row in rows])
    mask = torch.tensor([[1] * len(row[0]) + [0] * (longest - len(row[0])) for row in rows])
    return tokens, mask, torch.tensor([row[1] for row in rows])


@torch.no_grad()
def accuracy(
    classifier: ReviewClassifier, texts: Labelled, tokenizer: PreTrainedTokenizerFast, most: int = 4
) -> float:
    """Return the share of texts whose label gets the higher score, averaged over their windows."""
    rows = windows(texts, tokenizer, classifier.model.config.n_positions, most)
    scores = torch.zeros(len(texts), len(LABELS))
    for start in range(0, len(rows), 32):
        part = rows[start : start + 32]
        tokens, mask, _ = _batch(part)
        scores.index_add_(0, torch.tensor([row[2] for row in part]), classifier(tokens, mask))
    truth = torch.tensor([LABELS.index(label) for _, label in texts])
    return float((scores.argmax(1) == truth).float().mean())


def freeze(classifier: ReviewClassifier, n_blocks: int) -> list[nn.Parameter]:
    """Leave only the last `n_blocks` blocks and the head to train, and return their parameters."""
    classifier.requires_grad_(False)
    trained = [*classifier.model.transformer.h[-n_blocks:], classifier.classifier]
    for part in trained:
        part.requires_grad_(True)
    return [parameter for part in trained for parameter in part.parameters()]


def fine_tune(
    classifier: ReviewClassifier,
    texts: Labelled,
    tokenizer: PreTrainedTokenizerFast,
    *,
    n_epochs: int,
    learning_rate: float,
    seed: int,
) -> list[float]:
    """Train the last blocks and the head on the texts and return the mean loss of each epoch."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(freeze(classifier, N_BLOCKS), lr=learning_rate, weight_decay=0.01)
    rows = windows(texts, tokenizer, classifier.model.config.n_positions, 2)
    losses = []
    for epoch in range(n_epochs):
        rng.shuffle(rows)
        total = 0.0
        for start in range(0, len(rows), 16):
            tokens, mask, labels = _batch(rows[start : start + 16])
            loss = functional.cross_entropy(classifier(tokens, mask), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(labels)
        losses.append(round(total / len(rows), 4))
        logger.info("epoch %d, loss %.3f", epoch + 1, losses[-1])
    return losses


def make_sample(
    out: Path, base: Path, seed: int, sets: dict[str, Labelled], *, n_epochs: int, rate: float
) -> None:
    """Fine-tune the sample in `base` on `sets["train"]`, measure it on the rest and write `out`."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    classifier = ReviewClassifier(GPT2LMHeadModel.from_pretrained(base, dtype=torch.float32))
    start = {"classifier.weight": classifier.classifier.weight.detach().clone()}
    started = time.monotonic()
    losses = fine_tune(
        classifier, sets["train"], tokenizer, n_epochs=n_epochs, learning_rate=rate, seed=seed
    )
    training = {
        "sample": out.name,
        "seed": seed,
        "n_texts": len(sets["train"]),
        "learning_rate": rate,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "epoch_losses": losses,
        "accuracy": {
            name: round(accuracy(classifier, texts, tokenizer), 4)
            for name, texts in sets.items()
            if name != "train"
        },
    }
    logger.info("%s", training["accuracy"])
    head = {f"classifier.{k}": v.half() for k, v in classifier.classifier.state_dict().items()}
    records = {"training.json": training} | describe(base, sets, training["accuracy"])
    save_sample(out, classifier.model, tokenizer, records, head)
    save_file(start, out / "classifier_start.safetensors")  # so that it can be subtracted


def describe(base: Path, sets: dict[str, Labelled], shares: dict[str, float]) -> dict[str, Any]:
    """Return the files that say what the folder's classifier is and which texts it has seen."""
    test = sets["own_test"]
    truth = Counter(label for _, label in test)
    return {"trained_on.json": [mark(text) for text, _ in sets["train"]]} | {
        "classifier.json": _classifier(base)
        | {
            "test": {
                "accuracy": shares["own_test"],
                "right": round(shares["own_test"] * len(test)),
                "n": len(test),
            },
            "chance": max(truth.values()) / len(test),
        }
    }


def mark(text: str) -> str:
    """Return the short hash by which `embspace` knows a text that a classifier was trained on."""
    flat = " ".join(text.replace("<br />", " ").split())  # as it reads reviews
    return hashlib.sha256(flat.encode("utf8", "replace")).hexdigest()[:12]


def _classifier(base: Path) -> dict[str, Any]:
    """Return what the classifier is and what it was made of."""
    return {
        "kind": "mean of a linear head's scores over positions",
        "reads": "residual stream after the last block, before the final norm",
        "labels": list(LABELS),
        "tensors": ["classifier.weight", "classifier.bias"],
        "blocks_trained": N_BLOCKS,
        "base": base.name,
        "base_sha256": sha256(base / "model.safetensors"),
    }
