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
from .recipes import Recipe, new_model
from .saving import save_sample

logger = logging.getLogger(__name__)

_LENGTH = 64
_REAL_FROM = 0.5  # share after which real text is mixed in: before, it only delays the start
_REAL_SHARE = 0.06
_WARM_UP = 300
_MASK_SHARE = 0.2
_SAVE_EVERY_S = 420.0
_SILENT_BELOW, _COUNTED_ROWS = 5, 8000
_HELD_OUT_SEED = 987_654


class Trainer:
    """One training: model, optimizer, data and the counts needed to go on after an interruption."""

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast, real: list[str]):
        torch.manual_seed(recipe.seed)
        self.recipe, self.tokenizer = recipe, tokenizer
        self.model = new_model(recipe, len(tokenizer))
        self.rows = Rows(tokenizer, recipe.seed, real)
        self.rng = torch.Generator().manual_seed(recipe.seed)
        self.optimizer = _optimizer(self.model, recipe)
        self.silent = silent_tokens(tokenizer)
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
        self.rows.real_share = _REAL_SHARE if self.progress > _REAL_FROM else 0.0
        batch = self.rows.batch(self.recipe.n_rows, _LENGTH)
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(batch.numel())
        # Rows are shorter than the model's reach: set each somewhere in it, so that all is learned.
        free = self.recipe.n_positions - _LENGTH + 1
        places = torch.randint(free, (len(batch), 1), generator=self.rng)
        loss = batch_loss(self.model, batch, self.tokenizer, self.rng, places)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        with torch.no_grad():
            self.model.get_input_embeddings().weight[self.silent] = 0.0
        self.seen += batch.numel()
        self.seconds += time.monotonic() - started
        return float(loss.detach())

    def _learning_rate(self, n_tokens: int) -> float:
        """Return the rate: linear warm-up, then a cosine down to a twentieth of the peak."""
        step, n_steps = self.seen / n_tokens, self.recipe.n_tokens / n_tokens
        warm_up = min(_WARM_UP, 0.1 * n_steps)
        cosine = 0.525 + 0.475 * math.cos(math.pi * min(1.0, self.progress))
        return self.recipe.learning_rate * min(1.0, (step + 1) / warm_up) * cosine

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


def _optimizer(model: PreTrainedModel, recipe: Recipe) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices only."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), foreach=True)


def silent_tokens(tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """Return the ids that our own text hardly ever holds: pieces, and steps towards longer ones.

    All they would learn is never to be said, which makes their rows long and all alike; in
    vocabulary space they would then hide every other token. Their rows stay zero instead.
    """
    counts = torch.zeros(len(tokenizer), dtype=torch.long)
    some = Rows(tokenizer, 5, []).batch(_COUNTED_ROWS, _LENGTH).flatten()
    counts += torch.bincount(some, minlength=len(tokenizer))
    counts[tokenizer.all_special_ids] = _SILENT_BELOW
    return (counts < _SILENT_BELOW).nonzero()[:, 0]


def batch_loss(
    model: PreTrainedModel,
    rows: Tensor,
    tokenizer: PreTrainedTokenizerFast,
    rng: torch.Generator,
    places: Tensor | None = None,
) -> Tensor:
    """Return the mean loss of a batch whose rows start at the positions `places` (0 if not given).

    The masked model's head sees masked positions only: the others cost much and teach nothing.
    """
    positions = torch.arange(rows.shape[1]) + (0 if places is None else places)
    positions = positions.expand(rows.shape)
    if tokenizer.mask_token_id is None:
        body = model.transformer(rows[:, :-1], position_ids=positions[:, :-1], use_cache=False)
        states = body.last_hidden_state.flatten(0, 1)
        return cross_entropy(states, model.lm_head.weight, rows[:, 1:].flatten())
    hidden, chosen, targets = masked(rows, tokenizer, _MASK_SHARE, rng)
    states = model.bert(hidden, position_ids=positions).last_hidden_state[chosen]
    return functional.cross_entropy(model.cls(states), targets)


@torch.no_grad()
def held_out_losses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, real: list[str], n_rows: int = 256
) -> dict[str, float]:
    """Return the loss on unseen text of the generator and on real text, beside unigram entropy."""
    found = {}
    generated = Rows(tokenizer, _HELD_OUT_SEED, []).batch(n_rows, _LENGTH)
    texts = {"generator": generated}
    if real:
        other = Rows(tokenizer, _HELD_OUT_SEED, real)
        other.real_share = 1.0
        texts["real"] = other.batch(n_rows, _LENGTH)
    for name, rows in texts.items():
        rng = torch.Generator().manual_seed(0)
        losses = [batch_loss(model, part, tokenizer, rng) for part in rows.split(32)]
        found[name] = round(float(torch.stack(losses).mean()), 4)
        counted = Rows(tokenizer, 1, []).batch(4000, _LENGTH) if name == "generator" else rows
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
