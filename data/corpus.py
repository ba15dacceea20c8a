"""The stream of training rows: passages of the generator, mixed with real text where given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from .generate import Writer

_CHUNK = 500
_LEAST_CHARACTERS = 20
# Of real text, one line in this many is kept for measuring and never trained on.
_HELD_OUT_EVERY = 20


def read_real(places: list[Path]) -> list[str]:
    """Return the paragraphs and lines of text files, and of the `.txt` files inside folders."""
    found = []
    for place in places:
        for file in sorted(place.rglob("*.txt")) if place.is_dir() else [place]:
            found += [line.strip() for line in file.read_text("utf-8", "replace").splitlines()]
    return [line for line in found if len(line) > _LEAST_CHARACTERS]


def split_real(lines: list[str]) -> tuple[list[str], list[str]]:
    """Split real text into lines to train on and lines to measure on."""
    kept = [line for index, line in enumerate(lines) if index % _HELD_OUT_EVERY]
    return kept, lines[::_HELD_OUT_EVERY]


class Rows:
    """An endless stream of token rows, packed without padding; `real_share` may change."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int, real: list[str]):
        self._tokenizer, self._real = tokenizer, real
        self._passages = Writer(None, seed).passages()
        self._rng = random.Random(seed)
        self._buffer: list[int] = []
        self.real_share = 0.0

    def _texts(self) -> Iterator[str]:
        """Yield texts, own and real, in the shares asked for (counted in texts)."""
        while True:
            if self._real and self._rng.random() < self.real_share:
                yield self._real[int(self._rng.random() * len(self._real))]
            else:
                yield next(self._passages)

    def _more(self) -> None:
        """Encode another chunk of texts, each closed (or framed) by the special tokens."""
        texts = list(islice(self._texts(), _CHUNK))
        end = self._tokenizer.eos_token_id
        for row in self._tokenizer(texts)["input_ids"]:
            self._buffer.extend(row if end is None else [*row, end])

    def batch(self, n_rows: int, length: int) -> Tensor:
        """Return the next `n_rows` x `length` token ids."""
        n_tokens = n_rows * length
        while len(self._buffer) < n_tokens:
            self._more()
        taken, self._buffer = self._buffer[:n_tokens], self._buffer[n_tokens:]
        return torch.tensor(taken).view(n_rows, length)


def masked(
    rows: Tensor, tokenizer: PreTrainedTokenizerFast, share: float, rng: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (input, positions, targets); 80 % of targets masked, 10 % random, 10 % kept."""
    special = torch.tensor(tokenizer.all_special_ids)
    drawn = torch.rand(rows.shape, generator=rng) < share
    positions = drawn & ~torch.isin(rows, special)
    fate = torch.rand(rows.shape, generator=rng)
    random_ids = torch.randint(len(special), len(tokenizer), rows.shape, generator=rng)
    hidden = rows.masked_fill(positions & (fate < 0.8), tokenizer.mask_token_id)
    hidden = torch.where(positions & (fate > 0.9), random_ids, hidden)
    return hidden, positions, rows[positions]


def unigram_entropy(rows: Tensor, n_tokens: int, counts_from: Tensor) -> float:
    """Return the nats a token costs when only the word frequencies of `counts_from` are known."""
    counts = torch.bincount(counts_from.flatten(), minlength=n_tokens).double() + 0.5
    log_p = (counts / counts.sum()).log()
    return float(-log_p[rows.flatten()].mean())
