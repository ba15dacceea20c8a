"""VocabularySpace: the embedding E, its tokens' labels, filters, projection and both inverses."""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..checking import is_unicode, one_of, positive
from ..errors import VocabularyError
from ..notation import INVERSES, Inverse
from ..results import Record
from .filters import TokenFilters, filter_names, ids_of, word_of
from .labels import labels, n_ids, token_texts

BLOCK = 8192  # rows of E a product takes at a time
SPARE = 16  # candidates beyond k that are rescored in float64
BUFFER = 1 << 26  # bytes a rescoring buffer may take


@dataclass(frozen=True)
class Token(Record):
    """One token and its score in a projection: id, readable label, score, raw text."""

    id: int
    label: str
    score: float
    text: str | None

    def to_dict(self) -> dict[str, Any]:
        """The four fields; the label is called `token`."""
        return {"id": self.id, "token": self.label, "text": self.text, "score": self.score}


@dataclass(frozen=True)
class Lookup:
    """One spelling of a word: its text, token ids and labels. `single` when it is one token."""

    text: str
    ids: tuple[int, ...]
    labels: tuple[str, ...]

    @property
    def single(self) -> bool:
        """Whether this spelling is one token."""
        return len(self.ids) == 1


class VocabularySpace:
    """The V rows of an embedding that the tokenizer can name, and what may be said with them.

    `table` holds one row a token (E is its transpose, d × V), in the dtype it is stored in;
    rows beyond the tokenizer are cut off: they are no tokens. Source: [DAR] §3.
    """

    def __init__(
        self, table: Float[Tensor, "rows d"], tokenizer: Any | None, *, name: str = "model"
    ) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.n_rows = table.shape[0]
        n_named = self.n_rows if tokenizer is None else n_ids(tokenizer)
        self.table = table[:n_named]
        self.n_unreadable = max(0, n_named - self.n_rows)
        self._turned: dict[tuple[bool, bool], VocabularySpace] = {}

    def __len__(self) -> int:
        return self.table.shape[0]

    def __repr__(self) -> str:
        return f"VocabularySpace({self.name!r}, V={len(self)}, d={self.d})"

    @property
    def d(self) -> int:
        """Width of the stream that this space reads."""
        return self.table.shape[1]

    @property
    def E(self) -> Float[Tensor, "d V"]:
        """The transposed output embedding, as stored (memory-mapped)."""
        return self.table.T

    # tokens ------------------------------------------------------------------------------
    @cached_property
    def texts(self) -> list[str | None]:
        """Raw text of every id; None for ids without a token, or without a tokenizer."""
        if self.tokenizer is None:
            return [None] * len(self)
        return token_texts(self.tokenizer, len(self))

    @cached_property
    def labels(self) -> list[str]:
        """A readable, unique label of every id."""
        if self.tokenizer is None:
            return [f"#{i}" for i in range(len(self))]
        return labels(self.texts, self.special)

    @cached_property
    def _printed(self) -> dict[str, int]:
        """Label -> id."""
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def special(self) -> set[int]:
        """Ids of special tokens (start, end, padding, mask …)."""
        if self.tokenizer is None:
            return set()
        added = getattr(self.tokenizer, "added_tokens_decoder", {}).items()
        marked = {int(i) for i, token in added if getattr(token, "special", False)}
        return marked | set(self.tokenizer.all_special_ids)

    def find(self, word: str) -> list[Lookup]:
        """The spellings of a word, without and with a leading space; `#17` names an id.

        A spelling that the tokenizer does not know is left out. Raises VocabularyError for an id
        out of range, an empty word, or one of which no spelling is known.
        """
        if not isinstance(word, str) or not is_unicode(word):
            raise VocabularyError(f"{word!r} is no text: give a word, or #ID.")
        if re.fullmatch(r"#\d+", word):
            return [self._by_id(word[1:])]
        printed = self._printed.get(word)
        if printed is not None and self.texts[printed] != word:  # as the tables print it
            return [self._by_id(str(printed))]
        if not word.strip(" ") or self.tokenizer is None:
            raise VocabularyError(
                f"cannot look up {word!r}: "
                + ("give a word." if self.tokenizer else "this model has no tokenizer; give #ID.")
            )
        spellings = [word] if word[0].isspace() else [word, " " + word]
        found: dict[tuple[int, ...], Lookup] = {}
        for text in spellings:
            try:
                ids = tuple(ids_of(self.tokenizer, text))
            except Exception:  # the tokenizer knows no such word, and has no unknown token
                continue
            if ids and max(ids) < len(self) and not self._unknown(word, ids):
                found.setdefault(ids, Lookup(text, ids, tuple(self.labels[i] for i in ids)))
        if not found:
            raise VocabularyError(f"{word!r} has no token of its own in {self.name}.")
        return list(found.values())

    def token_ids(self, word: str) -> list[int]:
        """Ids of the spellings of a word that are one token.

        Raises VocabularyError where every spelling is several tokens, and shows them.
        """
        lookups = self.find(word)
        single = [lookup.ids[0] for lookup in lookups if lookup.single]
        if single:
            return single
        shown = "; ".join(f"{x.text!r} = {' + '.join(x.labels)}" for x in lookups)
        raise VocabularyError(f"{word!r} is not one token in {self.name}: {shown}.")

    def _unknown(self, word: str, ids: tuple[int, ...]) -> bool:
        """Whether the tokenizer has put its unknown token for some of the word."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        return unknown in ids and word.strip() != getattr(self.tokenizer, "unk_token", None)

    def _by_id(self, digits: str) -> Lookup:
        i = int(digits) if len(digits) < 18 else len(self)
        if i >= len(self):
            shown = digits[:40]
            raise VocabularyError(f"id {shown} is outside the vocabulary (0 to {len(self) - 1}).")
        return Lookup(self.labels[i], (i,), (self.labels[i],))

    # filters -----------------------------------------------------------------------------
    def mask(self, filters: str | Iterable[str] = ()) -> Bool[Tensor, "V"] | None:
        """Ids that pass every filter, as `TokenFilters.mask` names them; None when there is none.

        Raises VocabularyError for an unknown filter, a bad pattern, or when nothing passes.
        """
        names = filter_names(filters)
        return self._filters.mask(names) if names else None

    @cached_property
    def _filters(self) -> TokenFilters:
        return TokenFilters(self.name, self.tokenizer, self.texts, self.special)

    @cached_property
    def word_numbers(self) -> Int[Tensor, "V"]:
        """A number for each token, the same for tokens that are one word.

        Case and the mark of a word's start aside: We, ·we and ##we are one word. Special tokens,
        rows without a token and whitespace are words of their own.
        """
        seen: dict[str | int, int] = {}
        found = [
            seen.setdefault(i if text is None or i in self.special else word_of(text), len(seen))
            for i, text in enumerate(self.texts)
        ]
        return torch.tensor(found)

    def is_word(self, i: int) -> bool:
        """Whether token i is a word, as the filter `words` has it."""
        text = self.texts[i]
        return text is not None and i not in self.special and self._filters.is_word(text)

    # projection --------------------------------------------------------------------------
    def project(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n V"]:
        """x E for each vector, in the vectors' dtype. [DAR] §3."""
        self._check_width(vectors)
        return torch.cat([vectors @ block.T for _, block in self._blocks(vectors)], dim=-1)

    def with_rows(self, table: Float[Tensor, "V d"]) -> "VocabularySpace":
        """The same tokens with other rows: what `project`, `top` and `gram` then read with."""
        other = copy.copy(self)
        for name in ("gram", "_inverse_gram", "largest_norm", "_mean_row"):
            other.__dict__.pop(name, None)
        other.table = table
        return other

    def turned(self, *, centre: bool, unit: bool) -> "VocabularySpace":
        """The same tokens with float64 rows less their mean, and of length one; kept."""
        if not (centre or unit):
            return self
        if (centre, unit) not in self._turned:
            rows = self.table.double()
            rows = rows - self._mean_row if centre else rows
            rows = torch.nn.functional.normalize(rows, dim=1, eps=1e-300) if unit else rows
            self._turned[centre, unit] = self.with_rows(rows)
        return self._turned[centre, unit]

    @cached_property
    def _mean_row(self) -> Float[Tensor, "d"]:
        return self.table.double().mean(dim=0)

    def token(self, i: int, score: float) -> Token:
        """Token i with a score."""
        return Token(i, self.labels[i], score, self.texts[i])

    def top(
        self,
        x: Any,
        k: int = 10,
        *,
        smallest: bool = False,
        filters: str | Iterable[str] = (),
        centre: bool = False,
        unit: bool = False,
    ) -> Any:
        """The tokens of the k largest entries of x E, strongest first, exactly.

        Args:
            x: one vector (d), or vectors of any shape (…, d): a tensor, a numpy array or lists.
            k: how many tokens a vector.
            smallest: the smallest entries instead.
            filters: as in `mask`.
            centre: rows of E less their mean, and x less its part along that mean row, so that what
                all tokens share says nothing.
            unit: rows of length one, so that long rows do not win by their length.

        Returns:
            A list of `Token` for one vector; lists nested like the leading axes of x for several.

        Raises:
            VocabularyError: for a wrong width, or numbers that are not finite.
        """
        vectors = torch.as_tensor(x)
        vectors = vectors if vectors.is_floating_point() else vectors.float()
        flat = vectors.reshape(-1, vectors.shape[-1]) if vectors.ndim else vectors[None, None]
        space, mask = self.turned(centre=centre, unit=unit), self.mask(filters)
        if centre:
            along = torch.nn.functional.normalize(self._mean_row, dim=0).to(flat.device)
            flat = flat.double() - (flat.double() @ along)[:, None] * along
        ids, scores = space.top_ids(flat, k, smallest=smallest, allowed=mask)
        rows = [
            [self.token(i, s) for i, s in zip(row, score_row, strict=True)]
            for row, score_row in zip(ids.tolist(), scores.tolist(), strict=True)
        ]
        for size in reversed(vectors.shape[1:-1]):
            rows = [rows[n : n + size] for n in range(0, len(rows), max(size, 1))]
        return rows if vectors.ndim > 1 else rows[0]

    def top_ids(
        self,
        vectors: Float[Tensor, "n d"],
        k: int,
        *,
        smallest: bool = False,
        absolute: bool = False,
        allowed: Bool[Tensor, "V"] | None = None,
    ) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Ids and float64 scores of the k largest entries of x E, ties by id, exactly.

        `smallest`: the k smallest; `absolute`: the k largest in |x E| (scores are then absolute).
        Screened in the vectors' dtype, rescored in float64; a vector whose order the screening's
        rounding could change is done in float64 throughout. Memory stays under a few 64 MiB
        buffers. Raises VocabularyError for a wrong width, NaN or infinity.
        """
        self._check_width(vectors)
        k = min(positive(k), len(self) if allowed is None else int(allowed.sum()))
        step = max(1, BUFFER // (8 * self.d * (k + SPARE)))
        parts = [self._top(v, k, smallest, absolute, allowed) for v in vectors.split(step)]
        ids, scores = (torch.cat([part[at] for part in parts]).cpu() for at in (0, 1))
        return ids, -scores if smallest else scores

    def _top(self, vectors: Tensor, k: int, smallest: bool, absolute: bool, allowed: Tensor | None):
        vectors = -vectors if smallest else vectors
        ids, scores, sure = self._screen(vectors, k, absolute, allowed)
        for n in (~sure).nonzero()[:, 0].tolist():
            ids[n], scores[n] = self._dense(vectors[n], k, absolute, allowed)
        return ids, scores

    def _dense(self, vector: Tensor, k: int, absolute: bool, allowed: Tensor | None):
        """The same for one vector from all V float64 scores: slow, and never in doubt."""
        vector = vector.double()
        scores = torch.cat([(block * vector).sum(1) for _, block in self._blocks(vector)])
        scores = scores.abs() if absolute else scores
        if allowed is not None:
            scores = scores.masked_fill(~allowed.to(scores.device), -torch.inf)
        scores, ids = scores.sort(descending=True, stable=True)
        return ids[:k], scores[:k]

    def _screen(self, vectors: Tensor, k: int, absolute: bool, allowed: Tensor | None):
        n_allowed = len(self) if allowed is None else int(allowed.sum())
        n = min(k + SPARE, n_allowed)
        best = vectors.new_empty(len(vectors), 0)
        ids = torch.empty(len(vectors), 0, dtype=torch.long, device=vectors.device)
        for start, block in self._blocks(vectors):
            scores = vectors @ block.T
            scores = scores.abs() if absolute else scores
            if allowed is not None:
                part = allowed[start : start + len(block)].to(scores.device)
                scores = scores.masked_fill(~part, -torch.inf)
            top, at = scores.topk(min(n, scores.shape[1]))
            best, ids = torch.cat([best, top], 1), torch.cat([ids, at + start], 1)
            best, keep = best.topk(min(n, best.shape[1]))
            ids = ids.gather(1, keep)
        return self._rescore(vectors, ids, best, k, absolute, n_allowed)

    def _rescore(
        self, vectors: Tensor, ids: Tensor, screened: Tensor, k: int, absolute: bool, n_allowed: int
    ):
        order = ids.argsort(dim=1)
        ids, screened = ids.gather(1, order), screened.gather(1, order)
        rows = self.table[ids.to(self.table.device)].to(vectors.device).double()
        exact = (rows * vectors.double()[:, None]).sum(2)  # equal rows give equal sums
        exact = exact.abs() if absolute else exact
        scores, order = exact.sort(dim=1, descending=True, stable=True)
        complete = ids.shape[1] == n_allowed
        sure = scores[:, k - 1] > screened.min(dim=1).values + self._rounding(vectors)
        return ids.gather(1, order)[:, :k], scores[:, :k], sure | complete

    def _rounding(self, vectors: Tensor) -> Tensor:
        """Bound on the rounding of one screened score, (d + 1) u ‖x‖ max ‖e‖."""
        unit = torch.finfo(vectors.dtype).eps
        return (self.d + 1) * unit * vectors.norm(dim=1).double() * self.largest_norm

    @cached_property
    def largest_norm(self) -> float:
        """The largest Euclidean norm among the rows of E^T."""
        like = torch.empty(0, dtype=torch.float32, device=self.table.device)
        return max(float(block.norm(dim=1).max()) for _, block in self._blocks(like))

    @cached_property
    def gram(self) -> Float[Tensor, "d d"]:
        """E E^T in float64: sums over the vocabulary without the vocabulary."""
        gram = torch.zeros(self.d, self.d, dtype=torch.float64, device=self.table.device)
        for _, block in self._blocks(gram):
            gram += block.T @ block
        return gram

    def back(
        self, matrix: Float[Tensor, "d m"], inverse: Inverse = "transpose"
    ) -> Float[Tensor, "d m"]:
        """M such that E^T M = E' matrix, for E' = E^T or E^+ = E^T (E E^T)^+. [DAR] App. A."""
        if one_of(inverse, INVERSES, "inverse") == "transpose":
            return matrix
        return (self._inverse_gram @ matrix.double()).to(matrix.dtype)

    @cached_property
    def _inverse_gram(self) -> Float[Tensor, "d d"]:
        return torch.linalg.pinv(self.gram, hermitian=True)

    def _blocks(self, like: Tensor):
        for start in range(0, len(self), BLOCK):
            yield start, self.table[start : start + BLOCK].to(like.device, like.dtype)

    def _check_width(self, vectors: Tensor) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.d:
            raise VocabularyError(
                f"expected vectors of shape (n, {self.d}), got {tuple(vectors.shape)}."
            )
        if not bool(torch.isfinite(vectors).all()):
            raise VocabularyError("vectors to project hold NaN or infinity.")
