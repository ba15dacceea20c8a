"""The last blocks of a live model, run on states that come from elsewhere."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..checking import index
from ..errors import ModelError
from .hooks import read_batch
from .recorder import Recorder
from .replace import Own, Replaced
from .running import Running


class Tail(nn.Module):
    """The last `n` blocks of a live model: state L - n of padded texts to state L.

    The model itself makes masks and positions as always; its first blocks are left out, and what
    they would have put out is replaced by the given states.
    """

    def __init__(self, running: Running, n: int) -> None:
        super().__init__()
        self.running, self.live = running, running.module
        self.n = index(n, running.n_layers + 1, "count of blocks")
        self._blocks = Replaced(running)

    def forward(
        self, states: Float[Tensor, "B T d"], mask: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T d"]:
        """State L. Raises ModelError where the live model fails on the states."""
        if self.n == 0:
            return states
        L = self.running.n_layers
        entry = L - self.n

        def step(l: int, x: Tensor, own: Own) -> Tensor:
            if l < entry:
                return x  # left out
            return own(states.reshape(x.shape[:-1] + states.shape[-1:]) if l == entry else x)

        recorder = Recorder(self.running, [L], lambda x: x.reshape(states.shape))
        with self._blocks as blocks, recorder:
            blocks.step = step
            read_batch(self.running, torch.zeros_like(mask), mask)  # ids that no kept block sees
        if L not in recorder.states:
            raise ModelError(f"{self.running.model.name} runs its blocks in an order not known.")
        return recorder.states[L]
