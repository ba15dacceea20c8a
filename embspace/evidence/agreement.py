"""Readings of heads against what they do, accumulated text by text while a model runs."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import EmbspaceError
from ..live.tape import Attended, BlockRecord, mixed_values
from ..read.circuits import HeadCircuit
from ..read.reading import Reading
from ..read.seen_rows import source_mean, source_rows
from ..text.passages import Framed
from .concepts import mean_row

if TYPE_CHECKING:
    from ..weights.model import Model

LEAST_KEYS = 5  # tokens of a row from which its order says something
BIASED = ("alibi", "relative")  # positions that add to the logits
VISIBLE = 1e-30  # attention weights below are masked


class Sums:
    """Means over the rows of each text, for every layer: (n_texts, *shape) a layer."""

    def __init__(self, n_texts: int, n_layers: int, shape: tuple[int, ...]) -> None:
        self.total = torch.zeros(n_layers, n_texts, *shape, dtype=torch.float64)
        self.count = torch.zeros(n_layers, n_texts, *shape, dtype=torch.float64)

    def add(self, layer: int, text: int, total: Tensor, count: Tensor) -> None:
        """Sums over some rows of a text and how many there were."""
        self.total[layer, text] += total.double().cpu()
        self.count[layer, text] += count.double().cpu()

    def means(self, layer: int) -> Float[Tensor, "texts ..."]:
        """NaN where a text had no row."""
        return self.total[layer] / self.count[layer]


class Agreement:
    """Agreement of every head's reading with every head's doing in the same layer.

    qk, vo: (texts, H reading, H doing) a layer; others: (texts, H), a head's own reading of the
    other tokens of the text.
    """

    def __init__(self, model: "Model", reading: Reading, texts: list[Framed]) -> None:
        self.model, self.texts, self.reading = model, texts, reading
        H, n = model.n_heads, len(texts)
        self.qk, self.vo = (Sums(n, model.n_layers, (H, H)) for _ in range(2))
        self.others = Sums(n, model.n_layers, (H,))
        # as large as the attention weights, which the live model holds too
        self._layers: dict[int, _Layer] = {}
        self._means: dict[int, Tensor] = {}

    def note(self, record: BlockRecord, batch: list[int], ids: Int[Tensor, "B T"]) -> None:
        """Compare one block of one batch of texts."""
        if record.attended is None:
            raise EmbspaceError(
                f"the attention of block {record.layer} hands out no weights: nothing to compare."
            )
        reading = self._reading(record.layer)
        mixed = mixed_values(record)
        for row, text in enumerate(batch):
            weights = record.attended.weights[row].to(self.model.dtype)
            logits = self._logits(record.attended, row)
            rows = self._rows_of(record.layer, ids[row])
            keys = self._keys(text, len(ids[row]))
            order = weights if logits is None else logits
            total, count = ranked(
                self._scores(record.layer, reading, ids[row]), order, (weights > 0).any(0)
            )
            self.qk.add(record.layer, text, total, count)
            heads = mixed[row].reshape(len(rows), self.model.n_heads, -1).transpose(0, 1)
            found = written(reading, rows, ids[row], heads, weights, keys)
            self.vo.add(record.layer, text, *found[0])
            self.others.add(record.layer, text, *found[1])

    def _scores(
        self, layer: int, reading: "_Layer", ids: Int[Tensor, "T"]
    ) -> Float[Tensor, "H T T"]:
        """e_i W_QK e_j^T, from each token once: rounding must not tell equal tokens apart."""
        distinct, back = ids.unique(return_inverse=True)
        return reading.scores(self._rows_of(layer, distinct))[:, back][:, :, back]

    def _logits(self, found: Attended, row: int) -> Float[Tensor, "H T T"] | None:
        """q · k of all heads as they meet; None where a bias is added, or they are not handed out.

        Weights give the same order, but those too small for a float tie at 0.
        """
        if found.q is None or found.k is None or self.model.family.positions in BIASED:
            return None
        q, k = found.q[row], found.k[row]
        k = k.repeat_interleave(len(q) // len(k), dim=0)
        sign = 1.0 if found.scale is None or found.scale > 0 else -1.0
        return sign * (q @ k.transpose(-1, -2)).to(self.model.dtype)

    def _reading(self, layer: int) -> "_Layer":
        if layer not in self._layers:
            self._layers[layer] = _Layer(self.model, layer, self.reading, self._spread)
        return self._layers[layer]

    def _rows_of(self, layer: int, ids: Int[Tensor, "T"]) -> Float[Tensor, "T d"]:
        """What each token of a text looks like to the layer: e_i, or as the reading has it."""
        rows = source_rows(self.model, layer, self.reading, ids)
        if not self.reading.centre:
            return rows
        if layer not in self._means:
            self._means[layer] = source_mean(self.model, layer, self.reading)
        return rows - self._means[layer]

    def _keys(self, text: int, length: int) -> Bool[Tensor, "T"]:
        """Positions that may count as attended to: no special token, not the first position."""
        framed = self.texts[text]
        at = torch.arange(length, device=self.model.device)
        return (at >= max(1, framed.first)) & (at < framed.first + framed.n)

    @cached_property
    def _spread(self) -> Float[Tensor, "d d"]:
        """F with F F^T the covariance of E's columns: x F · y F is that of x E and y E over V."""
        space = self.model.vocabulary
        mean = mean_row(space)
        values, vectors = torch.linalg.eigh(space.gram / len(space) - torch.outer(mean, mean))
        return (vectors * values.clamp_min(0).sqrt()).to(self.model.device, self.model.dtype)


class _Layer:
    """All heads of one layer as read: factors of W_QK and W_VO, the writes in E's covariance."""

    def __init__(self, model: "Model", layer: int, how: Reading, spread: Tensor) -> None:
        def factors(circuit: Any) -> tuple[Tensor, Tensor]:
            heads = range(model.n_heads)
            pairs = [HeadCircuit(model, layer, h, circuit, reading=how).matrices for h in heads]
            left, right = (torch.stack([pair[side] for pair in pairs]) for side in (0, 1))
            return left, right

        self.asks, self.attended = factors("qk")
        self.reads, writes = factors("vo")
        self.writes = writes.transpose(1, 2) @ spread  # H × d_h × d

    def scores(self, rows: Float[Tensor, "T d"]) -> Float[Tensor, "H T T"]:
        """e_i W_QK e_j^T for all tokens of a text."""
        return (rows @ self.asks) @ (rows @ self.attended).transpose(1, 2)

    def promoted(self, rows: Float[Tensor, "T d"]) -> Float[Tensor, "H T d"]:
        """e_j W_VO of all tokens, of unit length in E's covariance."""
        return _unit(rows @ self.reads @ self.writes)

    def wrote(self, mixed: Float[Tensor, "H T d_h"]) -> Float[Tensor, "H T d"]:
        """What each head wrote, of unit length in E's covariance."""
        return _unit(mixed @ self.writes)


def ranked(
    scores: Float[Tensor, "H T T"], done: Float[Tensor, "H T T"], sight: Bool[Tensor, "T T"]
) -> tuple[Float[Tensor, "H H"], Float[Tensor, "H H"]]:
    """Sum over rows, and count, of Spearman's correlation of each reading with each head's row.

    `sight`: which tokens (second axis) the token that asks can attend to. A row that only ties
    counts as 0. Rows with fewer than `LEAST_KEYS` tokens in sight are left out.
    """
    H, T = scores.shape[:2]
    total, count = scores.new_zeros(H, H), 0
    for q in range(T):
        seen = sight[q]
        if int(seen.sum()) < LEAST_KEYS:
            continue
        ours, true = (_unit(ranks(x[:, q, seen])) for x in (scores, done))
        total += ours @ true.T
        count += 1
    return total, torch.full_like(total, count)


def ranks(x: Float[Tensor, "H n"]) -> Float[Tensor, "H n"]:
    """Average ranks of each row, centred."""
    below = (x[:, None, :] < x[:, :, None]).sum(-1)
    same = (x[:, None, :] == x[:, :, None]).sum(-1)
    return below.to(x) + (same.to(x) - 1) / 2 - (x.shape[1] - 1) / 2


def written(
    reading: _Layer,
    rows: Float[Tensor, "T d"],
    ids: Int[Tensor, "T"],
    mixed: Float[Tensor, "H T d_h"],
    weights: Float[Tensor, "H T T"],
    keys: Bool[Tensor, "T"],
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Sums over rows, and counts, of the correlation of readings with each head's real write.

    First (H reading, H doing), of the token most attended to; then (H), of the other tokens.
    """
    H, promoted, wrote = len(mixed), reading.promoted(rows), reading.wrote(mixed)
    sight = weights.masked_fill(~keys, 0.0)
    most, attended = sight.max(dim=2)  # H × T
    total, count = rows.new_zeros(H, H), rows.new_zeros(H, H)
    rest, n_rest = rows.new_zeros(H), rows.new_zeros(H)
    for h in range(H):
        judged = (most[h] > VISIBLE).nonzero()[:, 0]
        chosen, doing = attended[h, judged], wrote[h, judged]
        total[:, h] = (promoted[:, chosen] * doing).sum((1, 2))
        count[:, h] = len(judged)
        others = (ids != ids[chosen][:, None]) & keys  # judged × T
        means = (promoted[h] @ doing.T).T.masked_fill(~others, 0.0).sum(1) / others.sum(1)
        rest[h], n_rest[h] = means[means.isfinite()].sum(), means.isfinite().sum()
    return (total, count), (rest, n_rest)


def _unit(x: Float[Tensor, "... n"]) -> Float[Tensor, "... n"]:
    """Rows of unit length; rows of zeros stay zeros."""
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-30)
