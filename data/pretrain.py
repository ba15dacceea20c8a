"""The training loop of the samples that learn language: causal (GPT-2) or masked (BERT)."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from .corpus import Rows, masked, unigram_entropy
from .fused_loss import cross_entropy
from .recipes import N_POSITIONS, Recipe, new_model
from .saving import save_sample

logger = logging.getLogger(__name__)

_SHORT = 64
_LONG_FROM = 0.85  # share of the training after which rows fill all positions
_REAL_FROM = 0.5  # share after which real text is mixed in: before, it only delays the start
_REAL_SHARE = 0.06
_WARM_UP = 300
_MASK_SHARE = 0.2
_SAVE_EVERY_S = 420.0
_HELD_OUT_SEED = 987_654


class Trainer:
    """One training: model, optimizer, data and the counts needed to go on after an interruption."""

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast, real: list[str]):
        torch.manual_seed(recipe.seed)
        self.recipe, self.tokenizer = recipe, tokenizer
        self.model = new_model(recipe, len(tokenizer))
        self.rows = Rows(tokenizer, recipe.seed, real)
        self.rng = torch.Generator().manual_seed(recipe.seed)
        self.optimizer = _optimizer(self.model, recipe.learning_rate)
        self.seen, self.seconds = 0, 0.0
        self.losses: list[tuple[int, float]] = []
        self.resumed_at: list[int] = []

    @property
    def progress(self) -> float:
        """Share of the training done, 0 to 1."""
        return self.seen / self.recipe.n_tokens

    def step(self) -> float:
        """Train on one batch and return its loss."""
        started = time.monotonic()
        length = N_POSITIONS if self.progress > _LONG_FROM else _SHORT
        n_rows = self.recipe.n_rows * _SHORT // length
        self.rows.real_share = _REAL_SHARE if self.progress > _REAL_FROM else 0.0
        batch = self.rows.batch(n_rows, length)
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(batch.numel())
        loss = batch_loss(self.model, batch, self.tokenizer, self.rng)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.seen += batch.numel()
        self.seconds += time.monotonic() - started
        return float(loss.detach())

    def _learning_rate(self, n_tokens: int) -> float:
        """Return the rate: linear warm-up, then a cosine down to a twentieth of the peak."""
        step = self.seen / n_tokens
        cosine = 0.525 + 0.475 * math.cos(math.pi * min(1.0, self.progress))
        return self.recipe.learning_rate * min(1.0, (step + 1) / _WARM_UP) * cosine

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counts": (self.seen, self.seconds, self.losses),
            "resumed_at": self.resumed_at,
        }

    def restore(self, state: dict[str, Any], real: list[str]) -> None:
        """Go on from a saved state; the text then goes on from a seed of its own."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.seen, self.seconds, self.losses = state["counts"]
        self.resumed_at = [*state.get("resumed_at", []), self.seen]
        self.rows = Rows(self.tokenizer, self.recipe.seed * 1_000_003 + self.seen, real)


def _optimizer(model: PreTrainedModel, learning_rate: float) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices only."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), foreach=True)


def batch_loss(
    model: PreTrainedModel, rows: Tensor, tokenizer: PreTrainedTokenizerFast, rng: torch.Generator
) -> Tensor:
    """Return the mean loss of a batch; the masked model's head sees masked positions only."""
    if tokenizer.mask_token_id is None:
        states = model.transformer(rows[:, :-1], use_cache=False).last_hidden_state
        return cross_entropy(states.flatten(0, 1), model.lm_head.weight, rows[:, 1:].flatten())
    hidden, positions, targets = masked(rows, tokenizer, _MASK_SHARE, rng)
    states = model.bert(hidden).last_hidden_state[positions]
    return functional.cross_entropy(model.cls(states), targets)


@torch.no_grad()
def held_out_losses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, real: list[str], n_rows: int = 256
) -> dict[str, float]:
    """Return the loss on unseen text of the generator and on real text, beside unigram entropy."""
    found = {}
    generated = Rows(tokenizer, _HELD_OUT_SEED, []).batch(n_rows, _SHORT)
    texts = {"generator": generated}
    if real:
        other = Rows(tokenizer, _HELD_OUT_SEED, real)
        other.real_share = 1.0
        texts["real"] = other.batch(n_rows, _SHORT)
    for name, rows in texts.items():
        rng = torch.Generator().manual_seed(0)
        losses = [batch_loss(model, part, tokenizer, rng) for part in rows.split(32)]
        found[name] = round(float(torch.stack(losses).mean()), 4)
        counted = Rows(tokenizer, 1, []).batch(4000, _SHORT) if name == "generator" else rows
        found[f"{name}_unigram"] = round(unigram_entropy(rows, len(tokenizer), counted), 4)
    return found


def train(
    trainer: Trainer, folder: Path, work: Path, held_out: list[str], about: dict[str, Any]
) -> None:
    """Train to the end of the recipe, saving the sample and a state to go on from as it goes."""
    saved = time.monotonic()
    recent: list[float] = []
    while trainer.progress < 1.0:
        recent.append(trainer.step())
        if len(recent) == 100:
            trainer.losses.append((trainer.seen, round(sum(recent) / 100, 4)))
            rate = trainer.seen / trainer.seconds
            logger.info("%d tokens, loss %.3f, %.0f tokens/s", *trainer.losses[-1], rate)
            recent = []
        if time.monotonic() - saved > _SAVE_EVERY_S:
            checkpoint(trainer, folder, work, held_out, about)
            saved = time.monotonic()
    checkpoint(trainer, folder, work, held_out, about)


def checkpoint(
    trainer: Trainer, folder: Path, work: Path, held_out: list[str], about: dict[str, Any]
) -> None:
    """Write the sample as it is now, and the state from which training can go on."""
    losses = held_out_losses(trainer.model, trainer.tokenizer, held_out)
    logger.info("held out: %s", losses)
    thinned = trainer.losses[:: max(1, len(trainer.losses) // 40)]
    record = about | {
        "recipe": asdict(trainer.recipe),
        "tokens": trainer.seen,
        "resumed_at": trainer.resumed_at,
        "finished": trainer.progress >= 1.0,
        "minutes": round(trainer.seconds / 60, 1),
        "held_out_loss": losses,
        "training_loss": [list(pair) for pair in islice(thinned, 60)],
    }
    work.mkdir(parents=True, exist_ok=True)
    save_sample(folder, trainer.model, trainer.tokenizer, {"training.json": record})
    torch.save(trainer.state(), work / "state.tmp")
    (work / "state.tmp").rename(work / "state.pt")


def load_state(work: Path) -> dict[str, Any] | None:
    """Return the state in `work`, if there is one."""
    file = work / "state.pt"
    return torch.load(file, weights_only=False) if file.exists() else None
