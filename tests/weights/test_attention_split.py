"""Fused projections taken apart: every layout, for any number of heads, groups and widths."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from embspace.errors import ModelError
from embspace.read.reader import load
from embspace.weights.attention import split_groups, split_slabs


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Any, list[Tensor], list[Tensor], list[Tensor]]:
    """Sizes, and the query, key and value matrices (d_h × d) of every head."""
    groups, per_group = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    d_head, d = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    sizes = SimpleNamespace(n_heads=groups * per_group, n_kv_heads=groups, d_head=d_head, d=d)
    count = iter(range(10_000))

    def matrix() -> Tensor:
        return torch.full((d_head, d), float(next(count)))

    q = [matrix() for _ in range(groups * per_group)]
    k, v = ([matrix() for _ in range(groups)] for _ in range(2))
    return sizes, q, k, v


@given(layouts())
def test_slabs_are_all_queries_then_all_keys_then_all_values(layout):
    sizes, q, k, v = layout
    fused = torch.cat([*q, *k, *v])
    for which, heads in (("q", q), ("k", k), ("v", v)):
        assert torch.equal(split_slabs(fused, which, sizes), torch.cat(heads))
        assert torch.equal(split_slabs(fused[:, 0], which, sizes), torch.cat(heads)[:, 0])


@given(layouts())
def test_groups_keep_a_key_value_head_with_its_query_heads(layout):
    sizes, q, k, v = layout
    per_group = sizes.n_heads // sizes.n_kv_heads
    rows = []
    for g in range(sizes.n_kv_heads):
        rows += [*q[g * per_group : (g + 1) * per_group], k[g], v[g]]
    fused = torch.cat(rows)
    for which, heads in (("q", q), ("k", k), ("v", v)):
        assert torch.equal(split_groups(fused, which, sizes), torch.cat(heads))
        assert torch.equal(split_groups(fused[:, 0], which, sizes), torch.cat(heads)[:, 0])


def test_query_heads_repeat_their_key_value_head_and_do_not_tile_it(tiny_llama):
    attention = load(tiny_llama).attention(0)
    assert [attention.kv_head(h) for h in range(6)] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("head", [-1, 6, 100])
def test_a_head_that_does_not_exist_is_refused_with_the_range(tiny_llama, head: int):
    with pytest.raises(ModelError, match="0 to 5"):
        load(tiny_llama).attention(0).kv_head(head)


def test_an_expert_that_does_not_exist_is_refused(tiny_llama):
    with pytest.raises(ModelError, match="layer 0 is no mixture: it has no expert 0"):
        load(tiny_llama).feed_forward(0, 0)
