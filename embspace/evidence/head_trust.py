"""Does a head do what its weights say in vocabulary space? Beyond the papers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..checking import one_of
from ..errors import ModelError
from ..estimate import Estimate, estimate
from ..live.running import run
from ..live.tape import FEW, recorded
from ..notation import NORMS, Circuit, Norm
from ..read.reading import Reading
from ..results import Result
from ..text.passages import Encoder
from ..text.text import AnyText, Text
from .agreement import Agreement

if TYPE_CHECKING:
    from ..weights.model import Model

Grade = Literal["strong", "some", "none"]
GRADES: tuple[Grade, ...] = ("strong", "some", "none")
STRONG, SOME = 0.5, 0.2
MAX_TOKENS = 64
RULE = (
    f"some: agreement of at least {SOME} whose lead over every baseline has a 95 % interval above "
    f"0; strong: at least {STRONG} as well; none: anything less."
)


@dataclass(frozen=True)
class HeadTrust:
    """How far the reading of one circuit of one head agrees with what the head does.

    own: agreement of the reading with the head's doing; heads: of other heads' readings with it
    (None where a layer has one head); tokens: of its own reading of other tokens (vo only).
    leads: own minus each baseline, text by text.
    """

    layer: int
    head: int
    circuit: Circuit
    grade: Grade
    own: Estimate
    heads: float | None
    tokens: float | None
    leads: dict[str, Estimate]

    def to_dict(self) -> dict[str, Any]:
        """The fields, estimates with their ends."""
        return {
            "layer": self.layer,
            "head": self.head,
            "circuit": self.circuit,
            "grade": self.grade,
            "own": self.own.to_dict(),
            "heads": self.heads,
            "tokens": self.tokens,
            "leads": {name: lead.to_dict() for name, lead in self.leads.items()},
        }


@dataclass(frozen=True)
class Trust(Result):
    """A grade for each circuit of each head, with the agreement it rests on."""

    heads: tuple[HeadTrust, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def count(self, circuit: Circuit) -> dict[Grade, int]:
        """How many heads have each grade."""
        found = [h.grade for h in self.heads if h.circuit == circuit]
        return {grade: found.count(grade) for grade in GRADES}

    def to_dict(self) -> dict[str, Any]:
        """Every circuit of every head."""
        return {
            "heads": [head.to_dict() for head in self.heads],
            "rule": RULE,
            "settings": self.settings,
            "provenance": self.provenance,
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row a circuit."""
        return [
            {"layer": h.layer, "head": h.head, "circuit": h.circuit, "grade": h.grade}
            | h.own.cells("own")
            | {"heads": h.heads, "tokens": h.tokens, "n_texts": h.own.n}
            for h in self.heads
        ]


def trust(
    model: "Model",
    text: AnyText | None = None,
    *,
    norm: Norm = "raw",
) -> Trust:
    """Grade each head's reading in vocabulary space by what the head does on a text.

    qk: rank correlation, within a row, of e_i W_QK e_j^T over the row's own tokens with the real
    attention logits, averaged over rows of at least 5 tokens. vo: correlation over the vocabulary
    of row e_j W_VO E of the token most attended to (special tokens and the first position, where
    attention rests, aside) with what the head really writes there, projected by E. Baselines:
    readings of the layer's other heads; for vo, its own reading of the text's other tokens.
    `text`: see `Text` (default: a few sentences of the model's own kind), all positions of it, cut
    to 64 tokens unless it says otherwise; intervals take them as drawn. The grades follow `RULE`.
    Raises EmbspaceError for texts the model cannot read, and for norms that do not fold.
    """
    measuring = Trusting(model, text, norm=norm)
    for _ in measuring:
        pass
    return measuring.result()


class Trusting:
    """`trust` text by text: iterate (it yields how many texts are done), then ask for `result`."""

    def __init__(
        self,
        model: "Model",
        text: AnyText | None = None,
        *,
        norm: Norm = "raw",
    ) -> None:
        one_of(norm, NORMS, "norm")
        self.model, self.text, self.norm = model, Text.of(text, model, FEW), norm
        limit = Encoder(model).limit
        wanted = self.text.max_tokens or MAX_TOKENS
        encoder = Encoder(model, max_tokens=min(wanted, limit or wanted))
        framed = [encoder.framed(ids) for ids in encoder.encode(self.text.lines)]
        self.texts = [f for f in framed if f.n > 1]
        if len(self.texts) < 2:
            raise ModelError("two texts of at least two tokens are needed to grade heads.")
        self.max_tokens, self.n_cut = encoder.max_tokens, sum(f.cut for f in framed)
        self.agreement = Agreement(model, Reading(norm=norm), self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[int]:
        running = run(self.model)
        for batch in recorded(running, [f.ids for f in self.texts], self.agreement.note):
            yield from batch

    def result(self) -> Trust:
        """All circuits of all heads, graded."""
        model = self.model
        places = [(x, h) for x in range(model.n_layers) for h in range(model.n_heads)]
        found = [g for x, h in places for g in (self._vo(x, h), self._qk(x, h)) if g]
        settings = {
            "norm": self.norm,
            "inverse": "transpose",
            "n_texts": len(self.texts),
            "max_tokens": self.max_tokens,
            **self.text.record,
            "positions": "all",
        }
        notes = (f"{self.n_cut} texts were cut to {self.max_tokens} tokens.",) if self.n_cut else ()
        return Trust(tuple(found), settings, model.provenance, model.notes + notes)

    def _qk(self, layer: int, head: int) -> HeadTrust | None:
        means = self.agreement.qk.means(layer)  # texts × reading head × doing head
        return self._graded(layer, head, "qk", means[:, :, head], None)

    def _vo(self, layer: int, head: int) -> HeadTrust | None:
        means, others = self.agreement.vo.means(layer), self.agreement.others.means(layer)
        return self._graded(layer, head, "vo", means[:, :, head], others[:, head])

    def _graded(
        self,
        layer: int,
        head: int,
        circuit: Circuit,
        by_head: torch.Tensor,
        by_token: torch.Tensor | None,
    ) -> HeadTrust | None:
        """None where no text has a row to judge by."""
        seen = by_head[:, head].isfinite()
        if not bool(seen.any()):
            return None
        by_head = by_head[seen]
        own, baselines = by_head[:, head], {}
        if by_head.shape[1] > 1:
            baselines["heads"] = (by_head.sum(1) - own) / (by_head.shape[1] - 1)
        if by_token is not None and bool(by_token[seen].isfinite().any()):
            baselines["tokens"] = by_token[seen]
        leads, means = {}, {}
        for name, values in baselines.items():
            both = values.isfinite()
            leads[name] = estimate((own - values)[both])
            means[name] = float(values[both].mean())
        mean = estimate(own)
        return HeadTrust(
            layer,
            head,
            circuit,
            grade_of(mean, leads),
            mean,
            means.get("heads"),
            means.get("tokens"),
            leads,
        )


def grade_of(own: Estimate, leads: dict[str, Estimate]) -> Grade:
    """The grade by `RULE`; none where a lead has no interval."""
    if own.mean < SOME or any(lead.low is None or lead.low <= 0 for lead in leads.values()):
        return "none"
    return "strong" if own.mean >= STRONG else "some"
