"""Generate text with early exit that really stops, beside the full model in the same run."""

import hashlib
import inspect
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checking import indices, positive, whole
from ..errors import EmbspaceError, MapsError, ModelError
from ..live.greedy import cache_name, ends_of
from ..live.prediction_head import LiveHead
from ..live.recorder import Recorder, states_of
from ..live.replace import Replaced
from ..live.row_cache import RowCache, Slots
from ..live.running import Running, start_model
from ..maps.decoding import identity, through, why_no_head
from ..maps.maps import Maps
from ..text.passages import Encoder
from ..weights.rotary import alike_up_to
from .exit_result import ExitChoice, Exits
from .exit_rules import FIRST, TAU, finite
from .generated import GeneratedText, Generation, Measures
from .stepwise import FILLS, Fill, Leaving, Stepper

if TYPE_CHECKING:
    from ..weights.model import Model

Exit = Exits | ExitChoice | None
Rule = int | float | Exit  # blocks, λ, or a result
ROTATING = ("learned", "rotary")


def generate(
    model: "Model",
    maps: Maps | str | Path | None,
    prompts: str | Sequence[str],
    *,
    exit: Exit = None,
    exit_layer: int | None = None,
    exit_threshold: float | None = None,
    layers: Iterable[int] | None = None,
    mean_length: float | None = None,
    fill: str | None = None,
    max_new_tokens: int = 32,
    compare_fills: bool = False,
    repeats: int = 3,
) -> Generation:
    """Greedy text of a causal model whose sequences leave early, each on its own, and stop there.

    maps: fitted ones, a file, or None for the identity. One of: exit_layer, a number of blocks
    (fixed exit); exit_threshold, λ (confidence exit: p₁ − p₂ > 0.9 λ + 0.1 exp(−τ t / N), checked
    after the blocks in `layers`, by default all); exit, an `Exits` or its choice (its λ, N and
    layers). None of them: no sequence leaves early.
    mean_length: N (default: prompts' mean length plus half of the new tokens).
    Prompts are read by all blocks, so the first new token is the full model's. A token that leaves
    after block l runs no later block; block j > l stores keys and values of a stand-in for its
    state. fill: "maps" (mat_{l→j} x_l, needs maps of all pairs; the default where there are),
    "copy" (x_l; the default else) or "recompute" (all blocks run: exact caches, nothing saved).
    The full model generates from the same prompts in the same loop for time and text, by turns;
    repeats: the shortest of so many runs counts. compare_fills: agreement under every fill.
    Tokens that only padded rows of the embedding stand for are never generated.
    Raises ModelError for masked models and positions without an embedding or rotation, MapsError,
    EmbspaceError. [DIN] §6
    """
    if maps is not None:
        maps = maps.require(model) if isinstance(maps, Maps) else Maps.load(maps, model)
    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    ids = require_prompts(model, texts, max_new_tokens)
    length = _mean_length(mean_length, ids, max_new_tokens)
    rule = _rule(exit, exit_layer, exit_threshold)
    leaving = _leaving(rule, model.n_layers, layers, length)
    chosen = _fill(fill, maps, leaving)
    running = start_model(model)
    work = _Generating(running, maps, ids)
    return work.result(texts, leaving, chosen, max_new_tokens, compare_fills, repeats)


def require_prompts(
    model: "Model", texts: Sequence[str], max_new_tokens: int
) -> list[tuple[int, ...]]:
    """Token ids of prompts that the model can go on with; to be called before long work.

    Raises ModelError for a model that cannot generate here, EmbspaceError for the prompts.
    """
    if not model.family.causal:
        raise ModelError(f"{model.name} is a masked model: it generates no text.")
    reason = why_no_head(model)
    if reason:
        raise ModelError(reason)
    if model.family.positions not in ROTATING:
        raise ModelError(
            f"{model.name} has {model.family.positions} positions, which are not cut to some "
            "sequences of a batch: early exit generates with learned or rotary ones only."
        )
    ids = _encoded(model, texts, positive(max_new_tokens, "max_new_tokens"))
    most, n = alike_up_to(model.config), max(map(len, ids)) + max_new_tokens
    if most is not None and n > most:
        raise ModelError(
            f"{model.name} turns its keys anew in texts of more than {most} tokens, so those kept "
            f"from before do not fit: take shorter prompts or fewer new tokens (these are {n})."
        )
    return ids


def _encoded(model: "Model", texts: Sequence[str], n_new: int) -> list[tuple[int, ...]]:
    if not texts or not all(isinstance(text, str) for text in texts):
        raise EmbspaceError("give a prompt, or several as a list of text.")
    encoder = Encoder(model)
    found = [
        encoder.prefix + ids for ids in encoder.encode(list(texts))
    ]  # no closing token: it goes on
    for text, ids in zip(texts, found, strict=True):
        if not ids:
            raise EmbspaceError(f"the prompt {text[:40]!r} has no token.")
        if encoder.limit is not None and len(ids) + n_new > encoder.limit:
            raise EmbspaceError(
                f"{len(ids)} tokens and {n_new} new ones are more than the {encoder.limit} that "
                f"{model.name} takes."
            )
    return found


def _mean_length(given: float | None, ids: list[tuple[int, ...]], n_new: int) -> float:
    if given is None:
        return sum(map(len, ids)) / len(ids) + n_new / 2
    if not 0 < given < float("inf"):
        raise EmbspaceError(f"mean_length must be a positive number, got {given}.")
    return float(given)


def _rule(exit: Any, layer: Any, threshold: Any) -> Rule:
    """The one rule that was given: blocks as a whole number, λ as a fraction, or a result.

    Raises EmbspaceError for several, and for a bare number, which could be either.
    """
    if exit is not None and not isinstance(exit, Exits | ExitChoice):
        raise EmbspaceError(
            f"exit={str(exit)[:40]} could be a number of blocks or a λ: say exit_layer for blocks, "
            "exit_threshold for λ."
        )
    if sum(each is not None for each in (exit, layer, threshold)) > 1:
        raise EmbspaceError("give one of exit, exit_layer and exit_threshold.")
    if layer is not None:
        return whole(layer, "exit_layer")
    return exit if threshold is None else finite(threshold)


def _leaving(
    exit: Rule,
    n_layers: int,
    layers: Iterable[int] | None,
    length: float,
) -> Leaving:
    """The rule that an `exit` stands for. Raises EmbspaceError."""
    looked = range(FIRST, n_layers) if layers is None else indices(layers, n_layers, "layer")
    if isinstance(exit, Exits):
        allowed = exit.settings.get("layers")
        looked = allowed if layers is None and allowed is not None else looked
        length, exit = exit.settings["mean_length"], exit.choice(exit.settings["kind"])
    if isinstance(exit, ExitChoice):
        point = exit.point
        exit = int(point.at) if point.rule == "fixed" else float(point.at)
    if exit is None:
        return Leaving(n_layers, after=n_layers)
    if isinstance(exit, float):
        return Leaving(n_layers, lam=exit, mean_length=length, layers=frozenset(looked))
    after = int(exit)
    if not 0 <= after <= n_layers:
        raise EmbspaceError(f"there is no exit after {after} blocks: there are 0 to {n_layers}.")
    return Leaving(n_layers, after=after)


def _fill(fill: str | None, maps: Maps | None, leaving: Leaving) -> Fill:
    """How caches are filled. Raises MapsError where maps of some needed pair are missing."""
    fits = _has_all(maps, leaving)
    if fill is None:
        return "maps" if fits else "copy"
    if fill not in FILLS:
        raise EmbspaceError(f"unknown fill {str(fill)[:40]!r}: use {', '.join(FILLS)}.")
    if fill == "maps" and not fits:
        raise MapsError("filling caches through maps needs maps of all pairs: fit pairs all.")
    return fill


def _has_all(maps: Maps | None, leaving: Leaving) -> bool:
    if maps is None:
        return False
    n = leaving.n_layers
    exits = leaving.layers if leaving.after is None else [leaving.after]
    return all((l, j) in maps for l in exits for j in range(l + 1, n))


class _Generating:
    """A live model and prompts that it goes on with."""

    def __init__(
        self,
        running: Running,
        maps: Maps | None,
        ids: list[tuple[int, ...]],
    ) -> None:
        self.running, self.maps, self.ids = running, maps, ids
        self.model = running.model
        self.head = LiveHead(running)
        self.lens = identity if maps is None else through(maps)
        names = inspect.signature(running.base.forward).parameters
        self.cache_name = cache_name(running.base)
        self.takes_positions = "position_ids" in names
        if len(ids) > 1 and not self.takes_positions:
            raise ModelError(f"{self.model.name} takes no position ids: give one prompt at a time.")
        self.device = running.base.get_input_embeddings().weight.device
        tokenizer: Any = self.model.vocabulary.tokenizer
        self.ends = ends_of(self.model)
        self.tokenizer = tokenizer

    def result(
        self,
        texts: list[str],
        leaving: Leaving,
        fill: Fill,
        n_new: int,
        compare_fills: bool,
        repeats: int,
    ) -> Generation:
        """Both texts of every prompt, what they cost, how they agree."""
        never = Leaving(leaving.n_layers, after=leaving.n_layers)
        for rule in (never, leaving):  # not timed: what is loaded and built at first use
            self._generate(rule, fill, min(2, n_new))
        full, mine = [], []
        for _ in range(positive(repeats, "repeats")):
            full.append(self._generate(never, fill, n_new))
            mine.append(self._generate(leaving, fill, n_new))
        one, other = mine[0], full[0]
        compared = compare_fills and not leaving.is_full
        others: list[Fill] = [f for f in FILLS if f != fill] if compared else []
        if not _has_all(self.maps, leaving):
            others = [f for f in others if f != "maps"]
        agreements = {fill: self._agreement(one)}
        for each in others:
            agreements[each] = self._agreement(self._generate(leaving, each, n_new))
        found = tuple(
            GeneratedText(
                text, self._decoded(a), self._decoded(b), tuple(a), tuple(b), tuple(blocks)
            )
            for text, a, b, blocks in zip(texts, one.tokens, other.tokens, one.blocks, strict=True)
        )
        settings = self._settings(leaving, fill, n_new, repeats)
        mine_s, full_s = (tuple(each.seconds for each in runs) for runs in (mine, full))
        measures = Measures(mine_s, full_s, agreements)
        return Generation(found, measures, leaving.n_layers, settings, self.model.provenance)

    def _settings(self, leaving: Leaving, fill: Fill, n_new: int, repeats: int) -> dict[str, Any]:
        rule = "fixed" if leaving.after is not None else "confidence"
        return {
            "map": "id" if self.maps is None else self.maps.kind,
            "rule": rule,
            "at": leaving.after if rule == "fixed" else leaving.lam,
            "layers": sorted(leaving.layers) or None,
            "mean_length": leaving.mean_length if rule == "confidence" else None,
            "tau": TAU if rule == "confidence" else None,
            "fill": fill,
            "max_new_tokens": n_new,
            "repeats": repeats,
            "threads": torch.get_num_threads(),
            "device": str(self.device),
            "run_dtype": self.running.model.run_settings.dtype,
            "prompts_hash": hashlib.sha256(repr(self.ids).encode()).hexdigest()[:16],
            "batch": len(self.ids),
            "seed": None,  # greedy: nothing is drawn
        }

    @property
    def _last_state(self) -> str:
        """What an error calls a state that answers, with {} for its prompt."""
        return f"state {self.running.n_layers} of prompt {{}}"

    def _decoded(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    # generating --------------------------------------------------------------------------
    def _generate(self, leaving: Leaving, fill: Fill, n_new: int) -> "_Run":
        """New tokens of every prompt, greedily, by a rule."""
        n, longest = len(self.ids), max(map(len, self.ids))
        slots = Slots(n, longest + n_new)
        cache = RowCache(self.running.n_layers, slots)
        found = _Run([[] for _ in self.ids], [[] for _ in self.ids])
        start = time.perf_counter()
        L = self.running.n_layers
        with torch.no_grad(), Replaced(self.running) as blocks:
            with Recorder(self.running, [L]) as recorder:
                self._read(cache, longest)
            if not cache.filled:
                raise ModelError(f"{self.model.name} keeps its keys and values elsewhere.")
            first = self.head(recorder.states[L][:, -1], self._last_state, range(n)).argmax(-1)
            self._add(found, first.tolist(), leaving.n_layers)
            stepper = Stepper(self.head, self.lens, leaving, slots, fill, self.maps)
            for _ in range(n_new - 1):
                rows = [r for r in range(n) if found.tokens[r][-1] not in self.ends]
                if not rows:
                    break
                self._step(found, rows, cache, blocks, stepper, longest)
        found.seconds = time.perf_counter() - start
        return found

    def _read(self, cache: RowCache, longest: int) -> None:
        """The prompts, padded on the left, through all blocks."""
        ids = torch.zeros(len(self.ids), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, one in enumerate(self.ids):
            ids[row, longest - len(one) :] = torch.tensor(one)
            mask[row, longest - len(one) :] = 1
        self._forward(ids, mask, (mask.cumsum(1) - 1).clamp_min(0), cache)
        cache.slots.at = longest

    def _step(
        self,
        found: "_Run",
        rows: list[int],
        cache: RowCache,
        blocks: Replaced,
        stepper: Stepper,
        longest: int,
    ) -> None:
        """One more token of the sequences that are not finished."""
        slots = cache.slots
        ids = torch.tensor([[tokens[-1]] for tokens in found.tokens])
        at = torch.tensor([len(one) for one in self.ids]) + slots.at - longest
        mask = torch.ones(len(ids), slots.at + 1, dtype=torch.long)
        for row, one in enumerate(self.ids):
            mask[row, : longest - len(one)] = 0
        step = stepper.begin(rows, at.tolist())
        slots.rows, blocks.step = None, stepper
        try:
            self._forward(ids, mask, at[:, None], cache)
        finally:
            blocks.step, slots.rows = None, None
        slots.at += 1
        for row, token in step.tokens.items():
            found.tokens[row].append(token)
            found.blocks[row].append(step.blocks[row])

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: RowCache) -> None:
        given = {"input_ids": ids, "attention_mask": mask}
        if self.takes_positions:
            given["position_ids"] = positions
        moved = {name: x.to(self.device) for name, x in given.items()}
        self.running.base(**moved, **{self.cache_name: cache}, use_cache=True)

    def _add(self, found: "_Run", tokens: list[int], n_blocks: int) -> None:
        for row, token in enumerate(tokens):
            found.tokens[row].append(token)
            found.blocks[row].append(n_blocks)

    # comparing ---------------------------------------------------------------------------
    def _agreement(self, made: "_Run") -> float:
        """Share of new tokens that the full model would have chosen after the same text."""
        same = total = 0
        with torch.no_grad():
            for at, (prompt, tokens) in enumerate(zip(self.ids, made.tokens, strict=True)):
                L = self.running.n_layers
                ids = torch.tensor([[*prompt, *tokens[:-1]]], device=self.device)
                states = states_of(self.running, ids, torch.ones_like(ids), [L])
                rows = states[L][0, len(prompt) - 1 :]
                own = self.head(rows, self._last_state, [at] * len(rows)).argmax(-1).tolist()
                same += sum(a == b for a, b in zip(own, tokens, strict=True))
                total += len(tokens)
        return same / total


@dataclass
class _Run:
    """New tokens of every prompt, and how many blocks each ran."""

    tokens: list[list[int]]
    blocks: list[list[int]]
    seconds: float = field(default=0.0)
