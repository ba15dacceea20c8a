"""Which tokens take part in a reading: the most frequent ones, and none that was never trained."""

from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..errors import VocabularyError
from ..text.passages import Encoder
from ..text.text import Text
from ..weights.vocabulary import BLOCK, VocabularySpace

if TYPE_CHECKING:
    from ..weights.model import Model

ALIKE = 0.5  # cosine from which a centred row counts as one of those never trained
SHARE, FEWEST = 1000, 50  # one row in so many, and at least so many, are looked at for a cluster
NEIGHBOUR, CLUSTER = 0.6, 10  # cosine of rows of a cluster, and the fewest rows that make one
_trained: "WeakKeyDictionary[VocabularySpace, Tensor]" = WeakKeyDictionary()


def trained_tokens(space: VocabularySpace) -> Bool[Tensor, "V"]:
    """Which rows of E were trained.

    Tokens that a text never holds are all pushed the same way by the loss, so their rows end up
    together near the mean row [Land & Bartolo 2024]. Of the rows nearest to the mean (one in 1,000,
    at least 50), the largest group of one direction is taken, once centred; every row whose cosine
    with that direction is above .5 counts as never trained, as does a row of zeros. Where no ten
    rows are alike, all count as trained.
    """
    found = _trained.get(space)
    if found is None:
        found = _trained[space] = _measure(space)
    return found


def _measure(space: VocabularySpace) -> Tensor:
    blocks = [space.table[at : at + BLOCK] for at in range(0, len(space), BLOCK)]
    mean = torch.stack([b.double().sum(0) for b in blocks]).sum(0) / len(space)
    far = torch.cat([(b.double() - mean).norm(dim=1) for b in blocks])
    empty = torch.cat([b.double().norm(dim=1) == 0 for b in blocks])
    near = far.argsort(stable=True)[: max(FEWEST, len(space) // SHARE)]
    rows = space.table[near.to(space.table.device)].double() - mean
    unit = torch.nn.functional.normalize(rows, dim=1)
    neighbours = unit @ unit.T > NEIGHBOUR
    cluster = neighbours[int(neighbours.sum(1).argmax())]
    if int(cluster.sum()) < CLUSTER:
        return ~empty.cpu()
    towards = torch.nn.functional.normalize(unit[cluster].mean(0), dim=0)
    alike = torch.cat([(b.double() - mean) @ towards for b in blocks]) / far.clamp_min(1e-30)
    return (~empty & (alike <= ALIKE)).cpu()


def common_tokens(model: "Model", n: int, text: Any = None) -> Int[Tensor, "n"]:
    """Ids of the n most frequent tokens, ascending; of fewer where there are no more.

    With a text: its n most frequent tokens, ties by id. Without: the first n in the order of the
    vocabulary, which in BPE, unigram and WordPiece vocabularies runs from frequent to rare. Special
    tokens and those never trained are left out.

    Raises:
        VocabularyError: no token is left.
        TextError: the text cannot be read.
    """
    space = model.vocabulary
    allowed = trained_tokens(space).clone()
    allowed[[i for i in space.special if i < len(space)]] = False
    if text is None:
        ids = allowed.nonzero()[:, 0][:n]
    else:
        lines = Text.of(text, model).lines
        counts = Counter(i for ids in Encoder(model).encode(lines) for i in ids if i < len(space))
        ranked = sorted((i for i in counts if allowed[i]), key=lambda i: (-counts[i], i))
        ids = torch.tensor(sorted(ranked[:n]), dtype=torch.int64)
    if not len(ids):
        raise VocabularyError(f"no common token is left in {model.name}: use common='all'.")
    return ids
