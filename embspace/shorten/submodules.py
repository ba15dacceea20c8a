"""Sub-modules replaced by their linear maps from a block on. [DIN] §6"""

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import indices
from ..errors import EmbspaceError, ModelError
from ..intervals import Bootstrap
from ..live.capture import States
from ..live.recorder import PARTS, Part, has_part
from ..live.replace import part_replaced
from ..live.rerun import Batch, again
from ..live.running import Running, start_model
from ..maps.decoding import Comparison, identity, why_no_head
from ..maps.fit import fit
from ..maps.maps import Maps
from ..maps.run_record import batch_changes, record_of
from ..maps.score import LayerScore, layer_score
from ..maps.solve import Kind
from ..progress import Progress
from ..results import Result
from ..text.passages import Passages, passages
from ..text.splits import split
from ..text.text import AnyText, Text

if TYPE_CHECKING:
    from ..weights.model import Model

N_ROWS = 400  # rows that are scored, unless asked otherwise: each needs many forward passes
N_LAYERS = 8
WORDS: dict[Part, str] = {
    "attn_norm": "the first norms",
    "attn": "attention",
    "ff_norm": "the second norms",
    "ff": "the feed-forward layers",
}
NORMS = "norms"  # both norms of a block together, which the paper calls layer normalization
SPELLINGS: dict[str, tuple[Part, ...]] = {
    **{part: (part,) for part in PARTS},
    "norm1": ("attn_norm",),
    "norm2": ("ff_norm",),
    NORMS: ("attn_norm", "ff_norm"),
}
PAPERS = ("attn", "ff", NORMS)  # the sets of the paper's figure


@dataclass(frozen=True)
class SubmoduleScores(Result):
    """How well the final output survives when, from block l on, a set of sub-modules is linear.

    parts: the set ("attn", "ff", "norms", "attn,norms", …) -> one score for each first block l;
    blocks: the whole rest of the model replaced by one map at state l, for comparison; r2: part
    ("attn", "ff", "attn_norm", "ff_norm") -> block -> held-out r² of its own map.
    """

    parts: dict[str, tuple[LayerScore, ...]]
    blocks: tuple[LayerScore, ...]
    r2: dict[str, dict[int, float | None]]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Scores by part and first block, the single jump's, r² by part and block."""
        every = {**self.parts, "blocks": self.blocks}
        return {
            "parts": {n: {str(s.layer): s.to_dict() for s in each} for n, each in every.items()},
            "r2": {n: {str(l): v for l, v in each.items()} for n, each in self.r2.items()},
            "settings": self.settings,
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a first block and set, with the r² of each part of the set in that block."""
        every = {**self.parts, "blocks": self.blocks}
        means = dict.fromkeys(name for one in self.blocks for name in one.flat())
        return [
            {"replaced": name, "from_block": one.layer}
            | {f"r2_{part}": self._r2(name, part, one.layer) for part in self.r2}
            | means
            | one.flat()
            for name, each in every.items()
            for one in each
        ]

    def _r2(self, name: str, part: str, layer: int) -> float | None:
        """r² of a part's map in a block, where the set of that name holds the part."""
        held = name in self.parts and part in parts_of(name)
        return self.r2[part].get(layer) if held else None


def parts_of(name: str) -> tuple[Part, ...]:
    """`attn,norms` as the sub-modules it names, in the order of `PARTS`.

    Args:
        name: One or several of attn, ff, norm1 (attn_norm), norm2 (ff_norm) and norms (both norms
            of a block), between commas.

    Returns:
        The sub-modules, each once.

    Raises:
        EmbspaceError: For any other name.
    """
    named: set[Part] = set()
    for word in str(name).split(","):
        found = SPELLINGS.get(word.strip())
        if found is None:
            raise EmbspaceError(
                f"there is no sub-module {word.strip()[:40]!r}: give attn, ff, norm1, norm2 or "
                "norms (both), several between commas."
            )
        named.update(found)
    return tuple(part for part in PARTS if part in named)


def set_name(parts: Iterable[Part]) -> str:
    """The name of a set of sub-modules: `attn,norms` for attention and both norms."""
    named = list(parts)
    norms = [part for part in SPELLINGS[NORMS] if part in named]
    others = [part for part in named if part not in norms]
    return ",".join([*others, *([NORMS] if len(norms) == 2 else norms)])


def submodules(
    model: "Model",
    text: AnyText | None = None,
    *,
    replace: str | Iterable[str] | None = None,
    layers: Sequence[int] | None = None,
    rows: int = N_ROWS,
    kind: Kind = "mat",
    progress: Progress | None = None,
) -> SubmoduleScores:
    """Precision@k, Surprisal and KL of the final output with linear sub-modules.

    Each sub-module's map (least squares from its input to its output, at taken positions) replaces
    it at every position and in every block from l on, as in the paper's code; the rest of the model
    runs as it is. replace: one set of sub-modules that are made linear together, or several, each a
    name as `parts_of` takes it (default: attn, ff and norms, the paper's three); layers: the first
    blocks l to try (default: eight of them); rows: how many held-out lines are scored.
    Raises TextError, MapsError, ModelError, EmbspaceError for a sub-module that does not exist.
    """
    reason = why_no_head(model)
    if reason:
        raise ModelError(reason)
    sets, first = sets_of(model, replace), _first_blocks(model, layers)
    text = Text.of(text, model)
    lines = split(text)
    here = dataclasses.replace(text, fit=lines.fit, held_out=lines.score)
    maps = fit(model, here, parts="both", kind=kind, progress=progress)
    taken = passages(model, text, lines.score[:rows])
    running = start_model(model)
    work = _Replacing(running, maps, sets, first, progress)
    work.run(taken)
    changes, said = batch_changes(running, taken.passages)
    draws = work.draws(taken.settings["seed"])
    found = {name: work.scores(name, draws) for name in sets}
    blocks = work.jumps(draws)
    settings = {
        "kind": kind,
        "rows_fitted": maps.about["rows"],
        **record_of(model, taken),
        **changes,
    }
    r2 = {part: _r2_of(maps, part) for part in PARTS}
    return SubmoduleScores(
        found,
        blocks,
        {part: each for part, each in r2.items() if each},
        settings,
        tuple(dict.fromkeys((*work.lost(), *maps.about["notes"], *taken.notes(), *said))),
        model.provenance,
    )


def sets_of(model: "Model", asked: str | Iterable[str] | None) -> dict[str, tuple[Part, ...]]:
    """Sets of sub-modules by name.

    Args:
        model: The model whose sub-modules are meant.
        asked: One set, or several; None for those of the paper's that the model has.

    Returns:
        Name -> parts, in the order asked for.

    Raises:
        EmbspaceError: For a name that is none.
        ModelError: Where no block has a part that was asked for.
    """
    names = PAPERS if asked is None else (asked,) if isinstance(asked, str) else tuple(asked)
    if not names:
        raise EmbspaceError("no sub-module was given: leave replace out for attn, ff and norms.")
    own = {p for p in PARTS if any(has_part(model, l, p) for l in range(model.n_layers))}
    found: dict[str, tuple[Part, ...]] = {}
    for parts in map(parts_of, names):
        lacking: list[Part] = [part for part in parts if part not in own]
        if not lacking:
            found[set_name(parts)] = parts
        elif asked is not None:
            raise ModelError(f"no block of {model.name} has {words_of(lacking)} to replace.")
    return found


def words_of(parts: Iterable[Part]) -> str:
    """Sub-modules in words: `attention and both norms`."""
    named = list(parts)
    both = set(SPELLINGS[NORMS]) <= set(named)
    words = [WORDS[part] for part in named if not (both and part in SPELLINGS[NORMS])]
    return " and ".join([*words, *(["both norms"] if both else [])])


def _first_blocks(model: "Model", layers: Sequence[int] | None) -> list[int]:
    if layers is not None:
        return indices(layers, model.n_layers, "layer")
    step = max(1, -(-model.n_layers // N_LAYERS))
    return list(range(0, model.n_layers, step))


def _r2_of(maps: Maps, part: Part) -> dict[int, float | None]:
    name = f".{part}.in"
    return {int(p.source.split(".")[0]): p.r2 for p in maps.pairs if p.source.endswith(name)}


class _Replacing:
    """Runs of the held-out passes with some sub-modules linear, compared with the true output."""

    def __init__(
        self,
        running: Running,
        maps: Maps,
        sets: dict[str, tuple[Part, ...]],
        first: Sequence[int],
        progress: Progress | None,
    ) -> None:
        self.running, self.maps, self.first, self.progress = running, maps, first, progress
        self.model, self.sets = running.model, sets
        self.true: list[States] = []
        self.finals: dict[tuple[str, int], list[Tensor]] = {
            (name, l): [] for name in sets for l in first
        }

    def run(self, taken: Passages) -> None:
        """The last states with each set linear from each first block on."""
        n_done, n_all = 0, len(self.finals) * taken.n_tokens
        for batch in again(self.running, taken.passages, layers=self.first):
            self.true.append(batch.states)
            for (name, l), found in self.finals.items():
                found.append(self._final(batch, self.sets[name], l))
                n_done += batch.states.n_tokens
                if self.progress:
                    self.progress("submodules", n_done, n_all)

    def _final(self, batch: Batch, parts: tuple[Part, ...], first: int) -> Float[Tensor, "n d"]:
        x = batch.streams[first]
        for l in range(first, self.model.n_layers):
            with ExitStack() as stack:
                for part in parts:
                    mapped = partial(self._mapped, l, part)
                    stack.enter_context(part_replaced(self.running, l, part, mapped))
                x = batch.block(l, x)
        return batch.taken(x)

    def _mapped(self, l: int, part: Part, x: Tensor) -> Tensor:
        """What the linear map of a sub-module makes of its input."""
        return self.maps.apply(x.to(torch.float32), f"{l}.{part}.in", f"{l}.{part}.out")

    def scores(self, name: str, draws: Bootstrap) -> tuple[LayerScore, ...]:
        """One score for each first block."""
        return tuple(self._score(torch.cat(self.finals[name, l]), l, draws) for l in self.first)

    def lost(self) -> list[str]:
        """A sentence for each set and first block after which the states of some rows overflow.

        Maps see inputs that none was fitted on, and what one enlarges the next one enlarges again.
        """
        found = []
        for (name, l), finals in self.finals.items():
            finite = torch.isfinite(torch.cat(finals)).all(1)
            n = int((~finite).sum())
            if n:
                found.append(
                    f"With {words_of(self.sets[name])} linear from block {l} on, the states of {n} "
                    f"of {len(finite)} rows overflow: they count as wrong, and there is no "
                    "Surprisal and no KL."
                )
        return found

    def jumps(self, draws: Bootstrap) -> tuple[LayerScore, ...]:
        """The same for one map from state l to the last one."""
        every = {l: torch.cat([states.layers[l] for states in self.true]) for l in self.first}
        return tuple(self._score(self.maps.apply(x, l), l, draws) for l, x in every.items())

    def draws(self, seed: int) -> Bootstrap:
        """Resamples of the lines that were run."""
        return Bootstrap(torch.cat([states.lines for states in self.true]), seed=seed)

    def _score(self, final: Tensor, layer: int, draws: Bootstrap) -> LayerScore:
        """Final states of a changed run against those of the true one."""
        L = self.model.n_layers
        comparison = Comparison(self.model, {"changed": identity}, [-1])
        n = 0
        for true in self.true:
            mine = final[n : n + len(true)]
            layers = {-1: mine, L: true.layers[L]}
            comparison.add(States(true.lines, true.positions, true.tokens, layers))
            n += len(true)
        return _known(layer_score(comparison.outcome("changed", -1), layer, draws))


def _known(score: LayerScore) -> LayerScore:
    """The same without means that are no numbers."""
    means = {name: value for name, value in score.means.items() if isfinite(value)}
    return replace(score, means=means, intervals={name: score.intervals[name] for name in means})
