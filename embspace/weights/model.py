"""Model: a checkpoint's weights in the papers' notation, lazy, factored, never multiplied out."""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..checking import one_of
from ..errors import ModelError
from ..notation import Norm
from .attention import Attention
from .feed_forward import FeedForward, expert_keys
from .layout import Layout, spell
from .norms import head_norm_path
from .run_settings import AS_USUAL, RunSettings
from .scales import projection_clip
from .tensors import Checkpoint
from .tokenizer import load_tokenizer
from .vocabulary import VocabularySpace
from .weights import Weights

AnyModel = TypeVar("AnyModel", bound="Model")
Part = Literal["attn", "ff"]
OTHER_TASKS = tuple(
    f"For{task}"
    for task in (
        *("SequenceClassification", "TokenClassification", "QuestionAnswering"),
        *("MultipleChoice", "NextSentencePrediction"),
    )
)


class Model(Weights):
    """Weights of one checkpoint, read from its memory-mapped shards when asked for.

    Builds no torch module. The first number asked for proves the reading (`require_proof`). Tensors
    come in `dtype` (float32 unless asked otherwise) on `device`. Axis names: embspace.notation.
    """

    def __init__(
        self,
        name: str,
        config: Any,
        layout: Layout,
        checkpoint: Checkpoint,
        *,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        revision: str | None = None,
        run_settings: RunSettings = AS_USUAL,
        notes: tuple[str, ...] = (),
        stored_as: str | None = None,
        check: bool = True,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(name, config, layout, checkpoint, dtype=dtype, device=device)
        self.revision, self._notes, self._stored_as = revision, notes, stored_as
        self.run_settings, self.trust_remote_code = run_settings, trust_remote_code
        self.proof_due = check

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, {self.config.model_type}, L={self.n_layers}, "
            f"d={self.d}, H={self.n_heads}, G={self.n_kv_heads}, d_h={self.d_head})"
        )

    def with_run(self: "AnyModel", **changes: Any) -> "AnyModel":
        """The same model, run in another way.

        Args:
            **changes: Fields of `RunSettings`: dtype, batch_tokens, device_map.

        Raises:
            EmbspaceError: For a value that is none.
            TypeError: For a field that `RunSettings` does not have.
        """
        other = copy.copy(self)
        other.run_settings = replace(self.run_settings, **changes)
        return other

    @cached_property
    @abstractmethod
    def n_positions(self) -> int | None:
        """Tokens of the longest text, special ones included; None where there is no end.

        Raises CannotRunError where transformers has no class for the model.
        """

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What a result records of the model: name, revision, hash, stored and computing dtype."""
        return {
            "model": self.name,
            "revision": self.revision,
            "model_hash": self.checkpoint.fingerprint,
            "stored_dtype": self._stored_as or str(self.stored_dtype).removeprefix("torch."),
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about this reading, one sentence each."""
        return self._notes + tuple(self._structural_notes())

    # vocabulary --------------------------------------------------------------------------
    @cached_property
    def vocabulary(self) -> VocabularySpace:
        """The space spanned by the output embedding E, with the tokenizer's labels."""
        return VocabularySpace(
            self.embedding(),
            load_tokenizer(self.folder, trust_remote_code=self.trust_remote_code),
            name=self.name,
        )

    @property
    def tokenizer(self) -> Any | None:
        """The tokenizer beside the weights, or None where there is none."""
        return self.vocabulary.tokenizer

    def embedding(self, which: Literal["output", "input"] = "output") -> Float[Tensor, "rows d"]:
        """Rows of E^T (output) or E_in (input) as vectors of the stream; padded rows included.

        As stored and memory-mapped, so that a table of any size costs nothing until used; narrower
        tables (ALBERT, ELECTRA, OPT-350m) come multiplied by the model's own projection.
        Raises ModelError where the checkpoint holds no output embedding.
        """
        one_of(which, ("output", "input"), "embedding")
        self.require_proof()
        path = self.head_path if which == "output" else None
        table = self.checkpoint.tensor(f"{path or self.embedding_path}.weight").to(self.device)
        if table.shape[1] == self.d:
            return table
        return table.to(self.dtype) @ self._widening(which)

    @cached_property
    def head_path(self) -> str | None:
        """Module path of an untied head; None where the input embedding serves as head."""
        path = spell(self.family.head, "", self.checkpoint)
        if path and f"{path}.weight" in self.checkpoint:
            return None if self._ties and self._same_as_embedding(path) else path
        if not self._ties:
            raise ModelError(
                f"{self.name} holds no output embedding ({self.family.head}.weight) and its config "
                "ties none to the input embedding: there is no trained head to read with."
            )
        return None

    @property
    def has_head(self) -> bool:
        """Whether the checkpoint can predict tokens: a head, and the transform before it if any."""
        transform = self.family.transform
        if self.family.unproved_head:
            return False
        if transform and f"{transform.dense}.weight" not in self.checkpoint:
            return False
        if transform and self._other_task:  # ModernBERT's classifiers use the same transform
            return False
        try:
            return self.head_path is not None or self._ties
        except ModelError:
            return False

    def head_table(self) -> Float[Tensor, "rows narrow"]:
        """The head's matrix as stored, not widened. Raises ModelError where there is none."""
        self.require_proof()
        return self.checkpoint.tensor(f"{self.head_path or self.embedding_path}.weight").to(
            self.device
        )

    def embedding_rows(self, ids: Tensor) -> Float[Tensor, "... narrow"]:
        """Rows of the input embedding as stored, in this model's dtype."""
        self.require_proof()
        table = self.checkpoint.tensor(f"{self.embedding_path}.weight")
        return table[ids.cpu()].to(self.device, self.dtype)

    @cached_property
    def head_bias(self) -> Float[Tensor, "rows"] | None:
        """What the head adds to every token's logit, or None."""
        names = self.family.head_bias.split("|")
        # an untied head uses the decoder's own bias, of which older names are then stale copies
        for name in names if self._ties else reversed(names):
            if name in self.checkpoint:
                return self.weight(name)
        return None

    def _same_as_embedding(self, path: str) -> bool:
        head = self.checkpoint.tensor(f"{path}.weight")
        table = self.checkpoint.tensor(f"{self.embedding_path}.weight")
        return head.shape == table.shape and bool((head == table).all())

    @property
    def _other_task(self) -> str | None:
        """The class that the checkpoint was saved from, where it predicts something but tokens."""
        named = getattr(self.config, "architectures", None)
        made = str(named[0]) if isinstance(named, list) and named else ""
        return made if made.endswith(OTHER_TASKS) else None

    @property
    def _ties(self) -> bool:
        return bool(getattr(self.config, "tie_word_embeddings", True))

    @property
    def embedding_path(self) -> str:
        """Module path of the input embedding."""
        return self.layout.prefix + self.family.embedding

    def _widening(self, which: str) -> Float[Tensor, "narrow d"]:
        """Narrow embedding -> stream: the transposed output projection, else the input one."""
        family, prefix = self.family, self.layout.prefix
        out = spell(family.project_out, prefix, self.checkpoint)
        if which == "output" and out:
            return self.weight(f"{out}.weight")
        inward = spell(family.project_in, prefix, self.checkpoint)
        if inward is None:
            raise ModelError(
                f"{self.name}: the embedding is not {self.d} wide and no projection is known."
            )
        return self.weight(f"{inward}.weight").T

    # weights -----------------------------------------------------------------------------
    def attention(self, layer: int) -> Attention:
        """The attention weights of a block."""
        return Attention(self, layer)

    def feed_forward(self, layer: int, expert: int | str | None = None) -> FeedForward:
        """The feed-forward weights of a block; of one expert (a number, or "shared") where many."""
        return FeedForward.of(self, layer, expert)

    def experts(self, layer: int) -> list[int | str | None]:
        """What `feed_forward` takes for a layer: [None], or expert numbers and "shared"."""
        return expert_keys(self, layer)

    # norms -------------------------------------------------------------------------------
    def reading_gain(self, layer: int, part: Part) -> Float[Tensor, "d"] | None:
        """Gain of the norm through which a part reads the stream; None means 1.

        Raises ModelError for post-norm blocks, whose gains fold into no weight.
        """
        if self.family.attn_add:
            raise ModelError(
                f"{self.name} is a post-norm model: its norms come after the additions, so no "
                "weight reads through them and nothing can be folded; use raw norms."
            )
        return self._gain(layer, self.family.attn_norm if part == "attn" else self.family.ff_norm)

    def writing_gain(self, layer: int, part: Part) -> Float[Tensor, "d"] | None:
        """Gain of the norm on a part's output (Gemma 2/3, OLMo 2, GLM-4); None means 1."""
        return self._gain(layer, self.family.attn_post if part == "attn" else self.family.ff_post)

    def final_gain(self) -> Float[Tensor, "d"] | None:
        """Gain of the final norm; None means 1."""
        self.require_proof()
        path = spell(self.family.final_norm, self.layout.prefix, self.checkpoint)
        return self._offset(self.optional(f"{path}.weight"))

    def _gain(self, layer: int, names: str | None) -> Tensor | None:
        self.require_proof()
        path = spell(names, self.layout.block(layer), self.checkpoint)
        return self._offset(self.optional(f"{path}.weight")) if path else None

    def _offset(self, gain: Tensor | None) -> Tensor | None:
        return gain if gain is None else gain + self.family.gain_offset

    def _structural_notes(self) -> Iterator[str]:
        family = self.family
        if family.generic:
            yield (
                f"{self.config.model_type} is no architecture known by name: it is read by its "
                "shape, which its certificate confirms on these weights."
            )
        if family.positions == "rotary":
            yield (
                "W_QK is the score at relative distance 0"
                + (", without the query/key norms" if self.has_qk_norm else "")
                + " (rotary positions)."
            )
        if self.has_head and self._ties and self.head_path:
            yield (
                "The config ties the head to the input embedding, but the file holds another "
                f"matrix: {self.head_path}.weight is used, as transformers does."
            )
        clip = projection_clip(self)
        if clip is not None:
            yield f"Queries, keys and values are clipped at ±{clip:g}; circuits are read unclipped."
        if self.has_head and self._other_task:
            yield (
                f"This is a {self._other_task}: E is the input embedding that its config ties to "
                "a prediction head, not one it was last trained with."
            )
        if family.unproved_head:
            yield (
                f"The prediction head is not proved ({family.unproved_head}): no probabilities are "
                "shown."
            )
        elif not self.has_head:
            yield "This checkpoint has no prediction head: E is its input embedding."
        elif family.transform:
            yield "E is the decoder's matrix; the head's dense transform before it is not applied."
        if self.checkpoint.shape(f"{self.embedding_path}.weight")[-1] != self.d:
            yield "The embedding is narrower than the stream: E is its table times a projection."
        if self.layout.beyond(self.checkpoint):
            yield (
                f"The file holds blocks beyond the {self.n_layers} of the config, which are not "
                "read."
            )
        if self.layout.n_groups < self.n_layers:
            yield f"All {self.n_layers} layers share {self.layout.n_groups} set(s) of weights."

    @property
    def has_qk_norm(self) -> bool:
        """Whether queries and keys are normed before their product."""
        return head_norm_path(self, 0, "q") is not None


def fold(rows: Float[Tensor, "... d"], gain: Float[Tensor, "d"] | None) -> Float[Tensor, "... d"]:
    """Vectors of the stream with a norm's gain multiplied in; unchanged where the gain is 1."""
    return rows if gain is None else rows * gain


def reading(model: Model, layer: int, part: Part, norm: Norm) -> Tensor | None:
    """The gain to fold into weights that read the stream; None when raw."""
    return model.reading_gain(layer, part) if norm == "folded" else None


def writing(model: Model, layer: int, part: Part, norm: Norm) -> Tensor | None:
    """The gain to fold into weights that write: the part's post-norm times the final norm.

    The final norm's gain is left out where a dense transform lies between it and E (ModernBERT).
    """
    gains = [g for g in writing_gains(model, layer, part, norm) if g is not None]
    return torch.stack(gains).prod(dim=0) if gains else None


def writing_gains(
    model: Model, layer: int, part: Part, norm: Norm
) -> tuple[Tensor | None, Tensor | None]:
    """The same two apart, for where something lies between them; None means 1, or raw."""
    if norm == "raw":
        return None, None
    model.reading_gain(layer, part)  # refuses post-norm models
    final = None if model.family.transform else model.final_gain()
    return model.writing_gain(layer, part), final
