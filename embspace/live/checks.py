"""Each claim of a certificate: our split of the weights against what the live model computed."""

from typing import Any

import torch
from torch import Tensor

from ..weights import scales
from ..weights.layout import spell
from ..weights.model import Model, Part, fold
from ..weights.norms import epsilon, norm_at, shift_of, standardise
from . import rebuilt
from .direction import check_direction
from .findings import (
    ATTENTION,
    EMBEDDING,
    FEED_FORWARD,
    FINAL,
    LOGITS,
    PATTERN,
    QKV,
    READING,
    RESIDUAL,
    Findings,
    check_of,
    relative_error,
)
from .tape import BlockRecord, Call, Tape

PARTS = {"attn": "attention", "ff": "the feed-forward layer"}
CLOSE = 1e-4  # of the largest value: the same stream, whatever order it was summed in
N_POSITIONS = 8  # of a batch, at which the logits over the whole vocabulary are compared
VISIBLE = 1e-30  # attention weights below are masked, or too small for their logarithm
LOG_FLOOR = 0.01  # log-probabilities carry about 1e-7 of rounding however small the scores are


class Checker:
    """Compares every recorded block, and the ends of the model, with our reading of them."""

    def __init__(self, model: Model, layers: set[int]) -> None:
        self.model, self.layers = model, layers
        self.findings = Findings()
        self.states: list[Tensor] = []
        self.first_state: Tensor | None = None
        self.total: Tensor | None = None
        self.tape: Tape | None = None
        self._folded: set[tuple[int, Part]] = set()
        self._turned: tuple[BlockRecord, Tensor, Tensor] | None = None

    def block(self, record: BlockRecord) -> None:
        """Check one block; keep the running sum of what the blocks wrote."""
        if record.layer == 0:
            self.first_state, self.total = record.state_in, record.state_in
            self.states = []
        self.states.append(record.state_out)
        if record.layer in self.layers:
            self._queries_keys_values(record)
            self._pattern(record)
            self._attention(record)
            self._feed_forward(record)
            for part in ("attn", "ff"):
                if (record.layer, part) not in self._folded:  # one text shows it as well as more
                    self._reading(record, part)
                    self._folded.add((record.layer, part))
        self._residual(record)

    # attention ---------------------------------------------------------------------------
    @check_of(QKV)
    def _queries_keys_values(self, record: BlockRecord) -> None:
        layer, found = record.layer, record.attended
        if found is not None and found.q is not None and found.k is not None:
            scale = scales.score_scale(self.model, layer)
            assert found.scale is not None and found.v is not None
            q, k = self._queries_keys(record)
            self._heads(record, q * scale, found.q * found.scale)
            self._heads(record, k, found.k)
            self._heads(record, self._projected(record, "v"), found.v)
            return
        true = self._own_heads(record)
        if true is None:
            self.findings.skip(
                QKV, "its attention hands out no queries; pattern and output prove the split"
            )
            return
        for which, tensor in zip(("q", "k", "v"), true, strict=True):
            self._heads(record, self._projected(record, which), tensor)

    def _queries_keys(self, record: BlockRecord) -> tuple[Tensor, Tensor]:
        """Our queries and keys of a block, computed once for both checks that need them."""
        if self._turned is None or self._turned[0] is not record:
            x = _attention_input(record)
            places = record.positions  # PaliGemma counts from 1
            q, k = (rebuilt.turned(self.model, record.layer, w, x, places) for w in ("q", "k"))
            self._turned = (record, q, k)
        return self._turned[1], self._turned[2]

    def _projected(self, record: BlockRecord, which: Any) -> Tensor:
        x = _attention_input(record)
        return rebuilt.projected(self.model, record.layer, which, x).transpose(1, 2)

    def _own_heads(self, record: BlockRecord) -> tuple[Tensor, ...] | None:
        """q, k, v (B, heads, T, d_h) from the module's own split, or its separate projections."""
        n = record.state_in.shape[-2]
        split = record.call("split")
        if split is not None:
            return tuple(x if x.shape[-2] == n else x.transpose(1, 2) for x in split.output)
        calls = [record.call(which) for which in "qkv"]
        if any(call is None for call in calls):
            return None
        shape = (*record.state_in.shape[:-1], -1, self.model.d_head)
        return tuple(call.y.reshape(shape).transpose(1, 2) for call in calls if call)

    def _heads(self, record: BlockRecord, ours: Tensor, true: Tensor) -> None:
        if ours.shape[1] != true.shape[1] == self.model.n_heads:
            ours = rebuilt.to_query_heads(self.model, record.layer, ours)
        self.findings.compare(QKV, record.layer, ours, true)

    @check_of(PATTERN)
    def _pattern(self, record: BlockRecord) -> None:
        if record.attended is None:
            return self.findings.skip(PATTERN, "its attention returns no weights")
        layer = record.layer
        ours = rebuilt.scores(self.model, layer, *self._queries_keys(record)).double()
        # the live scores are rounded by their own size, which a softmax does not show
        floor = max(LOG_FLOOR, 0.1 * float(ours.abs().max()))
        weights = record.attended.weights.double()
        seen = weights > VISIBLE
        if self.model.family.positions in ("alibi", "relative"):
            # the same bias is added in every text, so differences between texts are free of it
            seen = seen & seen.roll(1, 0)
            ours, logs = (t - t.roll(1, 0) for t in (ours, weights.clamp_min(1e-300).log()))
        else:
            logs = weights.clamp_min(1e-300).log()
        ours, logs = _centred(ours, seen), _centred(logs, seen)
        self.findings.compare(PATTERN, layer, ours, logs, floor=floor)

    @check_of(ATTENTION)
    def _attention(self, record: BlockRecord) -> None:
        if record.attended is None:
            return self.findings.skip(ATTENTION, "its attention returns no weights")
        x, true = _attention_input(record), _needed(record, "o").y
        ours = rebuilt.attended(self.model, record.layer, record.attended.weights, x)
        self.findings.compare(ATTENTION, record.layer, ours, true)

    # feed-forward ------------------------------------------------------------------------
    @check_of(FEED_FORWARD)
    def _feed_forward(self, record: BlockRecord) -> None:
        layer = record.layer
        if self.model.experts(layer) != [None]:
            return self._mixture(record)
        ff = self.model.feed_forward(layer)
        ours = rebuilt.fed_forward(self.model, ff, _feed_forward_input(record))
        self.findings.compare(FEED_FORWARD, layer, ours, _needed(record, "down").y)

    def _mixture(self, record: BlockRecord) -> None:
        """The routed sum with the model's own weights, and each expert alone."""
        layer, call = record.layer, _needed(record, "experts")
        x, index, weights = call.inputs[:3]
        ours = rebuilt.routed(self.model, layer, x, index, weights)
        self.findings.compare(FEED_FORWARD, layer, ours, call.y)
        if "shared" in self.model.experts(layer):
            ours = ours + rebuilt.shared(self.model, layer, x)
        true = _needed(record, "mixture").y
        self.findings.compare(FEED_FORWARD, layer, ours, true.reshape(ours.shape))
        assert self.tape is not None
        experts: Any = self.tape.running.part(layer, "mlp.experts")
        for expert in [e for e in self.model.experts(layer) if isinstance(e, int)]:
            some = x[:4]
            chosen = torch.zeros_like(index[:4, :1]) + expert
            with torch.no_grad():
                true = experts(some, chosen, torch.ones_like(weights[:4, :1]))
            ours = rebuilt.fed_forward(self.model, self.model.feed_forward(layer, expert), some)
            self.findings.compare(FEED_FORWARD, layer, ours, true)

    # norms and the stream ----------------------------------------------------------------
    @check_of(READING)
    def _reading(self, record: BlockRecord, part: Part) -> None:
        """The norm without its gain, then weights with the gain folded in, meet the same."""
        model, layer = self.model, record.layer
        if model.family.attn_add:
            return self.findings.skip(READING, "post-norm blocks: no weight reads through a norm")
        names = model.family.attn_norm if part == "attn" else model.family.ff_norm
        true_x = _attention_input(record) if part == "attn" else _feed_forward_input(record)
        if names is None or (part == "attn" and layer == 0 and model.family.bare_first):
            if self._is_stream(record, part, true_x):
                return self.findings.skip(READING, "the blocks read the stream without a norm")
            return self.findings.fail(
                READING, layer, f"read without a norm before {PARTS[part]}, but there is one"
            )
        call = record.call("attn_norm" if part == "attn" else "ff_norm")
        if call is None:
            return self.findings.fail(READING, layer, f"the live block calls no {names!r}")
        if not self._is_stream(record, part, call.x):
            return self.findings.fail(READING, layer, f"{names!r} does not read the stream")
        x = standardise(call.x, model.family.norm, epsilon(model)).reshape(-1, model.d)
        gain, shift = model.reading_gain(layer, part), shift_of(model, layer, names)
        for rows in self._reading_rows(layer, part):
            ours = x @ fold(rows, gain).T
            ours = ours if shift is None else ours + shift @ rows.T
            self.findings.compare(READING, layer, ours, true_x.reshape(-1, model.d) @ rows.T)

    def _is_stream(self, record: BlockRecord, part: Part, x: Tensor) -> bool:
        """Whether x is the stream: what came in, or that and what attention wrote."""
        came = record.state_in.reshape(x.shape)
        if relative_error(x - came, came) <= CLOSE:
            return True
        attn = _needed(record, "o").y.reshape(x.shape)
        wrote = came + rebuilt.written(self.model, record.layer, "attn", attn)
        return part == "ff" and relative_error(x - wrote, wrote) <= CLOSE

    def _reading_rows(self, layer: int, part: Part) -> list[Tensor]:
        """All weights that read the stream in one part of a block, as rows of width d."""
        if part == "attn":
            attention = self.model.attention(layer)
            weights = (attention.W_Q, attention.W_K, attention.W_V)
            return [w.transpose(1, 2).reshape(-1, self.model.d) for w in weights]
        experts = self.model.experts(layer)
        return [keys for e in experts for keys in self.model.feed_forward(layer, e).keys.values()]

    @check_of(RESIDUAL)
    def _residual(self, record: BlockRecord) -> None:
        model, layer, shape = self.model, record.layer, record.state_in.shape
        attn = _needed(record, "o").y.reshape(shape)
        out = record.call("mixture") or _needed(record, "down")
        ff = out.y.reshape(shape)
        if model.family.attn_add:
            middle = self._added(layer, model.family.attn_add, record.state_in + attn)
            ours = self._added(layer, model.family.ff_add, middle + ff)
            return self.findings.compare(RESIDUAL, layer, ours, record.state_out)
        wrote = rebuilt.written(model, layer, "attn", attn) + rebuilt.written(
            model, layer, "ff", ff
        )
        self.findings.compare(RESIDUAL, layer, record.state_in + wrote, record.state_out)
        assert self.total is not None
        self.total = self.total + wrote
        self.findings.compare(RESIDUAL, layer, self.total, record.state_out)

    def _added(self, layer: int, names: str | None, x: Tensor) -> Tensor:
        """A post-norm block's norm of a sum."""
        model = self.model
        return norm_at(model, spell(names, model.layout.block(layer), model.checkpoint), x)

    # both ends ---------------------------------------------------------------------------
    @check_of(EMBEDDING)
    def embedding(self, ids: Tensor) -> None:
        """Rows of the table, scaled and projected, are state 0 (or differ as its texts do)."""
        model, state = self.model, self.first_state
        assert state is not None and self.tape is not None
        norm = self.tape.embed_norm
        rows = model.embedding_rows(ids) * scales.embedding_scale(model)
        if norm is None:
            rows, true = self._inward(rows), state
        else:
            true = norm.x
            self.findings.compare(EMBEDDING, 0, self._inward(norm.y), state)
        if model.family.positions in ("learned", "relative"):
            rows, true = rows - rows.roll(1, 0), true - true.roll(1, 0)
        self.findings.compare(EMBEDDING, 0, rows, true)

    def _inward(self, x: Tensor) -> Tensor:
        path = spell(self.model.family.project_in, self.model.layout.prefix, self.model.checkpoint)
        if path is None:
            return x
        weight, bias = self.model.linear(path)
        return x @ weight.T if bias is None else x @ weight.T + bias

    @check_of(LOGITS)
    def logits(self, output: Any) -> None:
        """Our prediction head on the last state against the model's own logits."""
        reason = self._no_logits(output)
        if reason:
            return self.findings.skip(LOGITS, reason)
        state, true = self._some(output)
        self.findings.compare(LOGITS, None, rebuilt.logits(self.model, state), true)

    @check_of(FINAL)
    def final(self, output: Any) -> None:
        """The final norm's gain folded into E gives the same logits."""
        model = self.model
        self._final_norm(output)
        reason = self._no_logits(output) or _no_final_fold(model)
        if reason:
            return self.findings.skip(FINAL, reason)
        state, true = self._some(output)
        x = standardise(state, model.family.norm, epsilon(model))
        gain = model.final_gain()
        path = spell(model.family.final_norm, model.layout.prefix, model.checkpoint)
        shift = model.optional(f"{path}.bias") if path else None
        table = model.embedding()
        ours = rebuilt.against(fold(x, gain), table)
        ours = ours if shift is None else ours + rebuilt.against(shift, table)
        self.findings.compare(FINAL, None, rebuilt.finished(model, ours), true)

    def _final_norm(self, output: Any) -> None:
        """The final norm is where the reading says; without a head, what the model hands out."""
        model, names = self.model, self.model.family.final_norm
        assert self.tape is not None and self.tape.last_state is not None
        if names and self.tape.running.base_part(names) is None:
            return self.findings.fail(FINAL, None, f"the live model has no {names!r}")
        true = getattr(output, "last_hidden_state", None)
        if true is None or true.shape != self.tape.last_state.shape:
            return None
        ours = rebuilt.final_norm(model, self.tape.last_state)
        if relative_error(ours - true, true) > CLOSE:
            self.findings.fail(FINAL, None, "the last state is not what the live model hands out")
        return None

    def _no_logits(self, output: Any) -> str | None:
        if not self.model.has_head:
            return "the checkpoint holds no prediction head"
        if getattr(output, "logits", None) is None:
            return "transformers has no class with a prediction head for this architecture"
        return None

    def plain(self, ids: Tensor) -> None:
        """What was recorded is what the model computes unwatched; text flows as it is read."""
        assert self.tape is not None
        check_direction(self.tape.running, ids, self.states, self.findings)

    def _some(self, output: Any) -> tuple[Tensor, Tensor]:
        """The last state and the true logits at a few positions."""
        assert self.tape is not None and self.tape.last_state is not None
        state = self.tape.last_state.flatten(0, 1)
        step = max(1, len(state) // N_POSITIONS)
        return state[::step], output.logits.flatten(0, 1)[::step]


def _no_final_fold(model: Model) -> str | None:
    if model.family.final_norm is None:
        return "the model has no final norm"
    if model.family.transform:
        return "a dense transform lies between the final norm and E"
    return None


def _centred(x: Tensor, seen: Tensor) -> Tensor:
    """x minus its mean over the seen keys; 0 at the others."""
    count = seen.sum(-1, keepdim=True).clamp_min(1)
    x = x.masked_fill(~seen, 0.0)
    return (x - x.sum(-1, keepdim=True) / count).masked_fill(~seen, 0.0)


def _attention_input(record: BlockRecord) -> Tensor:
    call = record.call("qkv") or _needed(record, "q")
    return call.x.reshape(record.state_in.shape)


def _feed_forward_input(record: BlockRecord) -> Tensor:
    """What meets the keys, in the shape the part was given it."""
    for role in ("experts", "gate_up", "up"):
        call = record.call(role)
        if call is not None:
            return call.x
    return _needed(record, "up").x


def _needed(record: BlockRecord, role: str) -> Call:
    call = record.call(role)
    if call is None:
        raise IndexError(f"the live block ran no {role}")
    return call
