"""The prediction head of a live causal model on states before the final norm, by its own modules.

The same numbers as `replay.logits`, without reading the checkpoint: for loops that run it often.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ModelError
from . import scales
from .running import Running


class LiveHead:
    """Final norm, projection where there is one, matrix and bias, logit scale, soft cap."""

    def __init__(self, running: Running) -> None:
        model = running.model
        self.model, self.n_tokens = model, len(model.vocabulary)
        self.matrix = running.module.get_output_embeddings()
        if self.matrix is None or model.family.transform is not None:
            raise ModelError(f"{model.name} has no head that generates tokens.")
        self.norm = running.base_part(model.family.final_norm)
        self.project = running.base_part(model.family.project_out)

    def __call__(self, states: Float[Tensor, "n d"]) -> Float[Tensor, "n V"]:
        """Logits of the tokens that the tokenizer can name."""
        x = states.to(self.matrix.weight.dtype)
        x = x if self.norm is None else self.norm(x)
        x = x if self.project is None else self.project(x)
        z = self.matrix(x)[..., : self.n_tokens].float() * scales.logit_scale(self.model)
        cap = scales.logit_cap(self.model)
        return z if cap is None else cap * torch.tanh(z / cap)
