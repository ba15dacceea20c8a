"""What else happens to a state of A on its way through the kernel into B's stream. [DAR] §5.2."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import ModelError
from ..live.recorder import states_of
from ..live.running import Running
from ..results import Record
from .classifier_texts import longest
from .shared_tokens import SharedTokens

TOKENS, AT_ONCE = 256, 16  # shared tokens that lengths are measured on, so many a pass


@dataclass(frozen=True)
class Carrying(Record):
    """How a state h of A becomes one of B, beside the kernel K.

    Args:
        match_scale: K is multiplied by one number, so that the median length of A's carried
            embeddings (state 0 of shared tokens, times K) is that of B's own: what is found then
            depends on the scale of neither stream. Without it K is E_A E_B^+ itself.
        final_norm: h goes through A's final norm before K, as in the paper's code.
        positions: B's position embeddings are added after K, as in the paper's code.
    """

    match_scale: bool = True
    final_norm: bool = False
    positions: bool = False

    def before(self, a: Running, states: Float[Tensor, "B T d_A"]) -> Float[Tensor, "B T d_A"]:
        """States as the kernel takes them. Raises ModelError where A has no final norm."""
        if not self.final_norm:
            return states
        norm = a.base_part(a.model.family.final_norm) if a.model.family.final_norm else None
        if norm is None:
            raise ModelError(f"{a.model.name} has no final norm that its states could go through.")
        return norm(states)


@torch.no_grad()
def scale_between(
    a: Running,
    b: Running,
    matrix: Float[Tensor, "d_A d_B"],
    shared: SharedTokens,
    carry: Carrying,
) -> float:
    """The number that `match_scale` multiplies the kernel by. Raises ModelError for no length."""
    if not carry.match_scale:
        return 1.0
    order = torch.randperm(len(shared), generator=torch.Generator().manual_seed(0))
    width = min(AT_ONCE, len(shared), longest(a.model, b.model))
    order = order[: min(TOKENS, len(shared)) // width * width].reshape(-1, width)
    one = carry.before(a, _embedded(a, shared.ids_a[order])).double()
    lengths = (
        rows.norm(dim=-1).median()
        for rows in (one @ matrix.to(one), _embedded(b, shared.ids_b[order]).double())
    )
    ours, theirs = map(float, lengths)
    if not 0 < theirs / (ours or torch.inf) < torch.inf:
        raise ModelError(
            f"the embeddings of {a.model.name} or {b.model.name} have no length on most shared "
            "tokens: their scales cannot be matched."
        )
    return theirs / ours


def positions_of(b: Running, n: int) -> Float[Tensor, "n d_B"]:
    """What B adds to the embedding of a token at each of its first positions.

    Raises ModelError where that is nothing, or depends on the token.
    """
    ids = torch.tensor([[0] * n, [1] * n])
    own = b.model.embedding_rows(ids)
    states = _embedded(b, ids)
    if own.shape == states.shape:
        added = states - own.to(states)
        if bool(added[0].any()) and torch.allclose(added[0], added[1], rtol=1e-3, atol=1e-4):
            return added[0]
    raise ModelError(f"{b.model.name} adds no position embeddings to its tokens' embeddings alone.")


@torch.no_grad()
def _embedded(running: Running, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
    """State 0 of rows of tokens."""
    ids = ids.to(running.model.device)
    return states_of(running, ids, torch.ones_like(ids), [0])[0]
