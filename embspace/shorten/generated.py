"""Text generated with early exit, and what that cost and saved beside the full model."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..results import Result


@dataclass(frozen=True)
class GeneratedText:
    """One prompt: what was generated with early exit, what the full model generates, token ids.

    blocks: how many blocks each new token ran (the first: all, since prompts are read in full).
    """

    prompt: str
    text: str
    full_text: str
    ids: tuple[int, ...]
    full_ids: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def n_same(self) -> int:
        """New tokens up to the first that differs from the full model's own text."""
        pairs = zip(self.ids, self.full_ids, strict=False)
        return next(
            (n for n, (a, b) in enumerate(pairs) if a != b), min(len(self.ids), len(self.full_ids))
        )


@dataclass(frozen=True)
class Measures:
    """Seconds of every run of both ways in the same loop, and agreement by how caches were filled.

    agreement: share of new tokens that the full model would have chosen after the same text.
    """

    all_seconds: tuple[float, ...]
    all_full_seconds: tuple[float, ...]
    agreement: dict[str, float]

    @property
    def seconds(self) -> float:
        """The shortest run with early exit: what is over that is other work of the machine."""
        return min(self.all_seconds)

    @property
    def full_seconds(self) -> float:
        """The shortest run of the full model."""
        return min(self.all_full_seconds)


@dataclass(frozen=True)
class Generation(Result):
    """What `generate` made: texts, times, agreement. tokens a second count all sequences."""

    texts: tuple[GeneratedText, ...]
    measures: Measures
    n_layers: int
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def n_tokens(self) -> int:
        """New tokens of all sequences."""
        return sum(len(text.ids) for text in self.texts)

    @property
    def blocks(self) -> float:
        """Mean blocks run by a new token."""
        return sum(sum(text.blocks) for text in self.texts) / self.n_tokens

    @property
    def agreement(self) -> float:
        """Share of new tokens that the full model would have chosen after the same text."""
        return self.measures.agreement[self.settings["fill"]]

    @property
    def tokens_per_second(self) -> float:
        """With early exit."""
        return self.n_tokens / self.measures.seconds

    @property
    def full_tokens_per_second(self) -> float:
        """Of the full model in the same loop."""
        return sum(len(text.full_ids) for text in self.texts) / self.measures.full_seconds

    @property
    def speed_up(self) -> float:
        """Tokens a second with early exit over those of the full model."""
        return self.tokens_per_second / self.full_tokens_per_second

    @property
    def same_text(self) -> float:
        """Share of new tokens before the first that differs from the full model's own text."""
        return sum(text.n_same for text in self.texts) / self.n_tokens

    @property
    def histogram(self) -> tuple[int, ...]:
        """How many new tokens ran 0 … L blocks."""
        count = Counter(n for text in self.texts for n in text.blocks)
        return tuple(count[n] for n in range(self.n_layers + 1))

    @property
    def verdict(self) -> str:
        """Whether anything was gained, in a sentence; a gain that some run did not show is none."""
        how = f"{self.tokens_per_second:.1f} tokens/s against {self.full_tokens_per_second:.1f}"
        if self.blocks >= self.n_layers:
            return f"No token left early, so nothing was saved: {how} of the full model."
        slowest = self.n_tokens / max(self.measures.all_seconds)
        if self.speed_up <= 1:
            return f"No gain in time: {how} of the full model."
        if slowest <= self.full_tokens_per_second:
            return f"No gain in time beyond the noise of the runs: {how} of the full model."
        return f"{self.speed_up:.2f} times as fast as the full model: {how}."

    def to_dict(self) -> dict[str, Any]:
        """Texts and measures, settings and provenance."""
        return {
            "texts": [dict(vars(text)) | {"n_same": text.n_same} for text in self.texts],
            "blocks": self.blocks,
            "saved": 1 - self.blocks / self.n_layers,
            "histogram": list(self.histogram),
            "agreement": self.measures.agreement,
            "same_text": self.same_text,
            "seconds": list(self.measures.all_seconds),
            "full_seconds": list(self.measures.all_full_seconds),
            "tokens_per_second": self.tokens_per_second,
            "full_tokens_per_second": self.full_tokens_per_second,
            "verdict": self.verdict,
            "settings": self.settings,
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a new token."""
        return [
            {"prompt": n, "token": k, "id": one, "blocks": blocks}
            for n, text in enumerate(self.texts)
            for k, (one, blocks) in enumerate(zip(text.ids, text.blocks, strict=True))
        ]
