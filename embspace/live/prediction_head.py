"""The prediction head of a live causal model on states before the final norm, by its own modules.

The same numbers as `replay.logits`, without reading the checkpoint: for loops that run it often.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ModelError
from ..weights import scales
from .capture import require_finite
from .running import Running


class LiveHead:
    """Final norm, projection where there is one, matrix and bias, logit scale, soft cap."""

    def __init__(self, running: Running) -> None:
        model = running.model
        model.require_proof()
        self.model, self.n_tokens = model, len(model.vocabulary)
        self.matrix = running.module.get_output_embeddings()
        if self.matrix is None or model.family.transform is not None:
            raise ModelError(f"{model.name} has no head that generates tokens.")
        self.norm = running.base_part(model.family.final_norm)
        self.project = running.base_part(model.family.project_out)

    def __call__(
        self, states: Float[Tensor, "n d"], what: str = "state {}", owners: Sequence[int] = ()
    ) -> Float[Tensor, "n V"]:
        """Logits of the tokens that the tokenizer can name.

        Raises StateError, by `what` and `owners` (see `require_finite`), where they are no numbers:
        the largest of NaNs would be token 0.
        """
        x = states.to(self.matrix.weight.dtype)
        x = x if self.norm is None else self.norm(x)
        x = x if self.project is None else self.project(x)
        z = self.matrix(x)[..., : self.n_tokens].float() * scales.logit_scale(self.model)
        cap = scales.logit_cap(self.model)
        z = z if cap is None else cap * torch.tanh(z / cap)
        largest = z.amax(-1)  # NaN where any is; a head may rule tokens out by -infinity
        if not bool(largest.isfinite().all()):
            owners = owners or range(len(states))
            require_finite(states, what, owners)
            require_finite(largest[:, None], f"the largest logit of {what}", owners)
        return z
