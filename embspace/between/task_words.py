"""Do vectors speak of a task's words? How often these are among their tokens, against chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import TextError, VocabularyError
from ..messages import first_line
from ..weights.json_files import path_of
from ..weights.vocabulary import VocabularySpace

DRAWS, AT_ONCE = 10_000, 500
BINS = 10  # of equal size, by the length of a token's row
OWN = "sentiment"


@dataclass(frozen=True)
class WordScore:
    """How often a list's words are among the k tokens at either end of some vectors.

    share: of all those tokens, the ones on the list. chance: the mean share of as many tokens of
    equally long rows, drawn at random; p: how often such a draw has at least this share.
    turned: the mean share where the vectors are turned at random in vocabulary space, all alike;
    p_turned: how often it is at least as large (None where no turns were asked for). Words of one
    kind lie close together, so that p alone takes any direction near them for a finding.
    base: the share of the base model's own vectors at the same places (None where it has none).
    """

    share: float
    chance: float
    p: float
    n_vectors: int
    turned: float | None = None
    p_turned: float | None = None
    base: float | None = None

    @property
    def ratio(self) -> float | None:
        """share over chance; None where chance is 0."""
        return self.share / self.chance if self.chance else None

    def to_dict(self) -> dict[str, Any]:
        """All fields and the ratio."""
        return {**vars(self), "ratio": self.ratio}


class TaskWords:
    """A list of words as tokens of a vocabulary, and tokens to draw others like them from."""

    def __init__(
        self, space: VocabularySpace, words: Sequence[str], *, name: str, seed: int = 0
    ) -> None:
        self.space, self.name, self.seed = space, name, seed
        candidates = space.mask("words")
        assert candidates is not None
        self.candidates = candidates
        among = candidates.tolist()
        ids: dict[int, None] = {}
        for word in words:
            ids |= dict.fromkeys(i for i in _single(space, word) if among[i])
        if not ids:
            raise TextError(f"no word of {name} is one whole token of {space.name}.")
        self.ids = torch.tensor(sorted(ids))

    def score(
        self,
        vectors: Float[Tensor, "n d"],
        *,
        k: int,
        turns: int = 0,
        base: Float[Tensor, "n d"] | None = None,
    ) -> WordScore:
        """Score some vectors, none of them zero; `turns`: how often they are turned at random."""
        counts = self._counts(vectors, k)
        drawn = self._drawn(counts)
        share = float(counts[self.ids].sum())
        own = None if base is None else float(self._counts(base, k)[self.ids].sum())
        turned = self._turned(vectors, k, turns)
        return WordScore(
            share,
            float(drawn.mean()),
            _p(drawn, share),
            len(vectors),
            float(turned.mean()) if turns else None,
            _p(turned, share) if turns else None,
            own,
        )

    def _turned(self, vectors: Tensor, k: int, turns: int) -> Float[Tensor, "turns"]:
        """The share after each random turn x → x C^½ Q C^-½, C being the covariance of E's tokens.

        It keeps the angles and lengths of the vectors' scores x E, and their number.
        """
        generator = torch.Generator().manual_seed(self.seed)
        found = torch.zeros(turns, dtype=torch.float64)
        listed = self._listed[self.candidates]
        forth, back = self._whitening
        for n in range(turns):
            q, _ = torch.linalg.qr(torch.randn(forth.shape, generator=generator).double())
            scores = (vectors.double() @ forth @ q @ back).float() @ self._rows.T
            ends = [scores.topk(k, dim=1, largest=side).indices for side in (True, False)]
            found[n] = listed[torch.stack(ends)].double().mean()
        return found

    @cached_property
    def _rows(self) -> Float[Tensor, "candidates d"]:
        """The candidates' rows of E^T."""
        table = self.space.table
        return table[self.candidates.nonzero()[:, 0].to(table.device)].float().cpu()

    @cached_property
    def _whitening(self) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"]]:
        """C^½ and its pseudo-inverse, over the candidates."""
        rows = self._rows.double()
        values, vectors = torch.linalg.eigh(torch.cov(rows.T, correction=0))
        roots = values.clamp_min(0).sqrt()
        inverse = torch.where(roots > roots.max() * 1e-6, 1 / roots, 0.0)
        return (vectors * roots) @ vectors.T, (vectors * inverse) @ vectors.T

    def _counts(self, vectors: Tensor, k: int) -> Float[Tensor, "V"]:
        """For every token, the share of all places at both ends of the vectors that it takes."""
        counts = torch.zeros(len(self.space), dtype=torch.float64)
        for smallest in (False, True):
            ids, _ = self.space.top_ids(vectors, k, smallest=smallest, allowed=self.candidates)
            counts += ids.flatten().bincount(minlength=len(self.space)).double()
        return counts / counts.sum()

    def _drawn(self, counts: Float[Tensor, "V"]) -> Float[Tensor, "draws"]:
        """The share that each draw of random tokens has."""
        return counts[self._draws].sum(1)

    @cached_property
    def _draws(self) -> Int[Tensor, "draws words"]:
        """Random tokens, as many from each bin of lengths as the list has, none twice in a draw."""
        generator = torch.Generator().manual_seed(self.seed)
        listed = self._listed
        parts = []
        for members in self._bins():
            n = int(listed[members].sum())
            if n:
                parts.append(members[distinct(n, len(members), DRAWS, generator)])
        return torch.cat(parts, dim=1)

    @cached_property
    def _listed(self) -> Bool[Tensor, "V"]:
        listed = torch.zeros(len(self.space), dtype=torch.bool)
        listed[self.ids] = True
        return listed

    def _bins(self) -> list[Int[Tensor, "m"]]:
        """Candidates in bins of equal size, by the length of their rows of E."""
        members = self.candidates.nonzero()[:, 0]
        table = self.space.table
        norms = table[members.to(table.device)].float().norm(dim=1).cpu()
        return list(members[norms.argsort(stable=True)].tensor_split(BINS))


def distinct(n: int, m: int, draws: int, generator: torch.Generator) -> Int[Tensor, "draws n"]:
    """Draws of n different numbers below m, every choice as likely as any other."""
    if n * n > m:
        keys = (
            torch.rand(len(part), m, generator=generator)
            for part in torch.empty(draws).split(AT_ONCE)
        )
        return torch.cat([key.topk(n, dim=1).indices for key in keys])
    found = torch.randint(m, (draws, n), generator=generator)
    while True:  # draws with a repeat are drawn again, of which each time at most half are left
        ordered = found.sort(dim=1).values
        repeats = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not bool(repeats.any()):
            return found
        found[repeats] = torch.randint(m, (int(repeats.sum()), n), generator=generator)


def _p(drawn: Float[Tensor, "draws"], share: float) -> float:
    """How often a draw is at least as large; never 0, for the observed one counts."""
    return (1 + int((drawn >= share - 1e-12).sum())) / (1 + len(drawn))


def read_words(path: str | Path | None) -> tuple[list[str], str]:
    """Words of a file, one a line (# begins a remark), and its name; None is our own list.

    Raises TextError where there is nothing to read.
    """
    home = Path(str(import_module("embspace_data").__file__)).parent / "words"
    file = home / f"{OWN}.txt" if path is None else path_of(str(path))
    try:
        lines = file.read_text(encoding="utf8").splitlines()
    except (OSError, ValueError) as error:
        raise TextError(f"the words in {file} cannot be read: {first_line(error)}.") from error
    words = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not words:
        raise TextError(f"{file} holds no words.")
    return words, OWN if path is None else file.name


def _single(space: VocabularySpace, word: str) -> list[int]:
    """Ids of the spellings of a word that are one token, none where there is no such spelling."""
    try:
        return [lookup.ids[0] for lookup in space.find(word) if lookup.single]
    except VocabularyError:
        return []
