"""The last blocks of a live model, run on states that come from elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..checking import index
from ..errors import EmbspaceError, ModelError
from ..messages import first_line
from .hooks import without_cache
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
        blocks = [running.block(l) for l in range(running.n_layers)]
        self._blocks = list(dict.fromkeys(blocks))  # layers may share a module
        self._forms: dict[nn.Module, tuple[Any, ...] | None] = {}

    def forward(
        self, states: Float[Tensor, "B T d"], mask: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T d"]:
        """State L. Raises ModelError where the live model fails on the states."""
        if self.n == 0:
            return states
        if not self._forms:
            self._learn_forms(states, mask)
        with self._skipping(states) as passed:
            self._run(mask)
        if passed.state is None or passed.at != self.running.n_layers:
            raise ModelError(f"{self.running.model.name} runs its blocks in an order not known.")
        return passed.state

    def _run(self, mask: Tensor) -> None:
        """The model as a whole, on ids that no kept block sees."""
        running = self.running
        ids = torch.zeros_like(mask)
        try:
            running.base(input_ids=ids, attention_mask=mask, **without_cache(running))
        except EmbspaceError:
            raise
        except Exception as error:
            raise ModelError(
                f"{running.model.name} cannot be run on states of another: {first_line(error)}."
            ) from error

    def _learn_forms(self, states: Tensor, mask: Tensor) -> None:
        """Whether a block puts out a tensor or a tuple: skipped ones must do alike."""

        def note(block: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            rest = tuple(output[1:]) if isinstance(output, tuple | list) else None
            self._forms[block] = None if rest is None else (None,) * len(rest)

        handles = [block.register_forward_hook(note) for block in self._blocks]
        try:
            with torch.no_grad():
                self._run(mask[:1, :1])
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def _skipping(self, states: Tensor) -> Iterator["_Passed"]:
        passed = _Passed(states, self.running.n_layers - self.n)
        for block in self._blocks:
            passed.take_over(block, self._forms[block])
        try:
            yield passed
        finally:
            for block in self._blocks:
                del block.forward


class _Passed:
    """Counts the blocks of one forward pass; skips the first ones, and gives the next the states.

    What comes out of a block is what goes into the next one: `state` is the last one's output.
    """

    def __init__(self, states: Tensor, n_skipped: int) -> None:
        self.states, self.n_skipped = states, n_skipped
        self.at, self.state = 0, None

    def take_over(self, block: nn.Module, form: tuple[Any, ...] | None) -> None:
        """Put ourselves in front of a block's own forward."""
        own = block.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.at += 1
            given = args[0] if args else kwargs["hidden_states"]
            if self.at <= self.n_skipped:
                return given if form is None else (given, *form)
            if self.at == self.n_skipped + 1:
                states = self.states.reshape(given.shape[:-1] + self.states.shape[-1:])
                if args:
                    args = (states, *args[1:])
                else:
                    kwargs["hidden_states"] = states
            output = own(*args, **kwargs)
            last = output[0] if isinstance(output, tuple | list) else output
            self.state = last.reshape(self.states.shape)
            return output

        block.forward = forward  # the instance's own, in front of the class's
