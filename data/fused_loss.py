"""Cross entropy over a large vocabulary in slices that stay in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

_SLICE = 192


class _SlicedCrossEntropy(torch.autograd.Function):
    """Mean cross entropy of `states @ weight.T`; both gradients are found on the way forward."""

    @staticmethod
    def forward(ctx, states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """Return the loss and keep the gradients for `backward`."""
        d_states, d_weight = torch.empty_like(states), torch.zeros_like(weight)
        total = states.new_zeros(())
        for start in range(0, len(states), _SLICE):
            part = slice(start, start + _SLICE)
            total += _one_slice(states[part], weight, targets[part], d_states[part], d_weight)
        ctx.save_for_backward(d_states, d_weight)
        return total / len(states)

    @staticmethod
    def backward(ctx, grad: Tensor):
        """Scale the kept gradients."""
        d_states, d_weight = ctx.saved_tensors
        scale = grad / len(d_states)
        return d_states * scale, d_weight * scale, None


def _one_slice(
    states: Tensor, weight: Tensor, targets: Tensor, d_states: Tensor, d_weight: Tensor
) -> Tensor:
    """Add one slice's gradients to `d_states` and `d_weight` and return its summed loss."""
    logits = states @ weight.T
    log_z = logits.logsumexp(1)
    rows = torch.arange(len(targets))
    loss = (log_z - logits[rows, targets]).sum()
    p = logits.sub_(log_z[:, None]).exp_()
    p[rows, targets] -= 1.0
    torch.mm(p, weight, out=d_states)
    d_weight.addmm_(p.T, states)
    return loss


def cross_entropy(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy in nats of (n, d) states against (V, d) output embeddings."""
    return _SlicedCrossEntropy.apply(states, weight, targets)
