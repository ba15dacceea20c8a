"""Choose how to leave early: λ or a number of blocks for a target, and the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..intervals import LEVEL, Bootstrap
from .exit_rules import NEVER, confidence_exits, fixed_exits, margins, ranks_at
from .outcomes import Outcomes

LEAST = 0.01  # a smaller λ asks for no confidence: nearly uniform predictions would pass
N_CANDIDATES = 200


@dataclass(frozen=True)
class Way:
    """One way of leaving: a lens, and a fixed number of blocks or λ of the confidence rule."""

    map: str
    rule: str  # fixed or confidence
    at: float

    def exits(self, outcomes: Outcomes, margin: Float[Tensor, "n L"]) -> Tensor:
        """Blocks run by each row."""
        if self.rule == "fixed":
            return fixed_exits(int(self.at), len(outcomes))
        return confidence_exits(margin, self.at)


@dataclass(frozen=True)
class Planned:
    """A way chosen on calibration rows for a target.

    low, high: 95 % interval of `at` when the calibration texts are drawn again; agreement and
    blocks: as measured on the calibration rows (optimistic: the choice was made on them); drawn:
    the number of the way chosen in each draw.
    """

    way: Way
    low: float
    high: float
    agreement: float
    blocks: float
    drawn: Int[Tensor, "draws"]


class Planner:
    """All ways of one lens on calibration rows: mean blocks run and agreement of each."""

    def __init__(
        self,
        name: str,
        outcomes: Outcomes,
        mean_length: float,
        layers: Sequence[int] | None,
        seed: int = 0,
    ) -> None:
        self.name, self.outcomes = name, outcomes
        self.margin = margins(outcomes, mean_length, layers)
        self.draws = Bootstrap(outcomes.lines, seed=seed)
        self.ways = {
            "fixed": [Way(name, "fixed", l) for l in range(outcomes.n_layers + 1)],
            "confidence": [Way(name, "confidence", lam) for lam in candidates(self.margin)],
        }
        self.table = {
            rule: table_of(ways, outcomes, self.margin) for rule, ways in self.ways.items()
        }

    def points(self, rule: str) -> list[tuple[Way, float, float]]:
        """(way, mean blocks run, agreement)."""
        exits, same = self.table[rule]
        means = zip(exits.mean(1).tolist(), same.mean(1).tolist(), strict=True)
        return [(way, *each) for way, each in zip(self.ways[rule], means, strict=True)]

    def choose(self, rule: str, target: float) -> Planned:
        """The way with the fewest blocks whose agreement reaches the target; L always does."""
        points = self.points(rule)
        ats = torch.tensor([way.at for way, _, _ in points], dtype=torch.float64)
        blocks, agreement = (
            torch.tensor([p[n] for p in points], dtype=torch.float64) for n in (1, 2)
        )
        best = _cheapest(blocks[None], agreement[None], target)[0]
        drawn = _cheapest(*drawn_means(self.draws, self.table[rule]), target)
        rest = (1 - LEVEL) / 2
        ends = torch.quantile(ats[drawn], torch.tensor([rest, 1 - rest], dtype=torch.float64))
        way = points[int(best)][0]
        agreed, run = float(agreement[best]), float(blocks[best])
        return Planned(way, float(ends[0]), float(ends[1]), agreed, run, drawn)


Table = tuple[Float[Tensor, "ways n"], Float[Tensor, "ways n"]]


def table_of(ways: Sequence[Way], outcomes: Outcomes, margin: Float[Tensor, "n L"]) -> Table:
    """(blocks run, whether the answer is the model's) by way and row."""
    exits = torch.stack([way.exits(outcomes, margin) for way in ways])
    same = torch.stack([ranks_at(outcomes, row) == 0 for row in exits])
    return exits.double(), same.double()


def drawn_means(draws: Bootstrap, table: Table) -> Table:
    """Mean blocks run and agreement of each way in every draw of texts (draws × ways)."""
    exits, same = (torch.stack([draws.means(row) for row in each], 1) for each in table)
    return exits, same


def blocks_at(
    blocks: Float[Tensor, "draws ways"], agreement: Float[Tensor, "draws ways"], target: float
) -> Float[Tensor, "draws"]:
    """Mean blocks run where exactly `target` of the answers stay, in each draw.

    Between the cheapest way that reaches the target and the one before it, which does not: rows
    leave by one or the other at random.
    """
    best = _cheapest(blocks, agreement, target)[:, None]
    before = (best - 1).clamp_min(0)
    more, less = agreement.gather(1, best), agreement.gather(1, before)
    share = torch.where(less < target, (more - target) / (more - less).clamp_min(1e-12), 0.0)
    share = share.clamp(0, 1)
    found = (1 - share) * blocks.gather(1, best) + share * blocks.gather(1, before)
    return found[:, 0]


def candidates(margin: Float[Tensor, "n L"]) -> list[float]:
    """λ to choose among: quantiles of the rows' own margins, and the one at which none leaves."""
    found = margin[(margin > LEAST) & (margin < NEVER)]
    if len(found) == 0:
        return [NEVER]
    steps = torch.linspace(0, 1, min(N_CANDIDATES, len(found)), dtype=torch.float64)
    kept = found.sort().values[(steps * (len(found) - 1)).round().long()]
    return [*sorted({LEAST, *kept.tolist()}), NEVER]


def _cheapest(
    blocks: Float[Tensor, "draws ways"], agreement: Float[Tensor, "draws ways"], target: float
) -> Tensor:
    """For each draw the way with the fewest blocks that reaches the target; the last one else."""
    reached = agreement >= target - 1e-12
    reached[:, -1] = True
    return blocks.masked_fill(~reached, float("inf")).argmin(1)


def front(points: Sequence[tuple[Way, float, float]]) -> list[Way]:
    """Ways that no other one beats: none has at most as many blocks and more agreement.

    In order of blocks run; of equal ones the first.
    """
    kept: list[Way] = []
    best = -1.0
    for way, _, agreement in sorted(points, key=lambda p: (p[1], -p[2])):
        if agreement > best + 1e-12:
            kept.append(way)
            best = agreement
    return kept
