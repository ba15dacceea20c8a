"""Hidden states of a text, of all layers together: one kind of vectors that E may invert."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..live.capture import capture
from ..live.running import run
from ..text.passages import passages
from ..text.text import Text

if TYPE_CHECKING:
    from ..weights.model import Model


def hidden_states(model: "Model", text: Text) -> Float[Tensor, "n d"]:
    """States 1 … L at one random position of every text, as they are, before any norm.

    Raises TextError for texts that the model cannot read.
    """
    chosen = passages(model, replace(text, positions="random"))
    layers = range(1, model.n_layers + 1)
    found = capture(run(model), chosen.passages, layers=layers, dtype=model.dtype)
    return torch.cat([state for states in found for state in states.layers.values()])
