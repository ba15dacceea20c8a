"""The kernel against dense pseudo-inverses in float64."""

import numpy as np
import pytest
import torch

from embspace.between.shared_tokens import SharedTokens
from embspace.between.stitch_kernel import kernel, shuffled, turned
from embspace.errors import EmbspaceError
from embspace.weights.vocabulary import VocabularySpace


def tables(d_a: int, d_b: int, *, rank: int | None = None, seed: int = 0):
    """Two vocabularies of 40 and 50 rows, 30 shared in another order, and those as arrays."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(n, d, generator=generator) for n, d in ((40, d_a), (50, d_b)))
    if rank is not None:
        b = b[:, :rank] @ torch.randn(rank, d_b, generator=generator)
    ids_a, ids_b = (torch.randperm(n, generator=generator)[:30] for n in (40, 50))
    shared = SharedTokens(ids_a, ids_b, (40, 50), False, 0)
    dense = a[ids_a].double().numpy().T, b[ids_b].double().numpy().T
    return VocabularySpace(a, None), VocabularySpace(b, None), shared, dense


@pytest.mark.parametrize("shape", [(8, 12), (12, 8), (8, 8)], ids=str)
def test_it_is_E_A_times_the_pseudo_inverse_of_E_B(shape):
    a, b, shared, (E_A, E_B) = tables(*shape)
    found = kernel(a, b, shared)
    assert found.matrix.numpy() == pytest.approx(E_A @ np.linalg.pinv(E_B), abs=1e-10)
    assert found.rank == shape[1]
    assert found.condition == pytest.approx(np.linalg.cond(E_B), rel=1e-6)


def test_embeddings_of_less_rank_get_the_least_kernel_and_say_so():
    a, b, shared, (E_A, E_B) = tables(8, 12, rank=5)
    found = kernel(a, b, shared)
    assert found.rank == 5
    assert found.matrix.numpy() == pytest.approx(E_A @ np.linalg.pinv(E_B, rcond=1e-6), abs=1e-6)


def test_a_model_with_itself_has_the_identity():
    a, _, _, _ = tables(8, 12)
    ids = torch.arange(40)
    found = kernel(a, a, SharedTokens(ids, ids, (40, 40), True, 0))
    assert found.matrix.numpy() == pytest.approx(np.eye(8), abs=1e-10)


def test_the_scaled_transpose_is_the_pseudo_inverse_where_E_B_is_white():
    q, _ = torch.linalg.qr(torch.randn(40, 8, generator=torch.Generator().manual_seed(1)).double())
    a, white = VocabularySpace(torch.randn(40, 6), None), VocabularySpace(3 * q, None)
    ids = torch.arange(40)
    shared = SharedTokens(ids, ids, (40, 40), True, 0)
    one, other = (kernel(a, white, shared, kind).matrix for kind in ("pinv", "transpose"))
    assert torch.allclose(one, other, atol=1e-10)


def test_the_scaled_transpose_is_a_multiple_of_the_plain_one():
    a, b, shared, (E_A, E_B) = tables(8, 12)
    found = kernel(a, b, shared, "transpose").matrix.numpy()
    assert found == pytest.approx(E_A @ E_B.T * 12 / (E_B**2).sum(), abs=1e-12)


def test_a_turned_kernel_has_the_same_singular_values_and_other_directions():
    a, b, shared, _ = tables(8, 12)
    matrix = kernel(a, b, shared).matrix
    other = turned(matrix, 0)
    values = [torch.linalg.svdvals(x) for x in (matrix, other)]
    assert torch.allclose(*values, atol=1e-10) and not torch.allclose(matrix, other)
    assert torch.equal(other, turned(matrix, 0)) and not torch.equal(other, turned(matrix, 1))


def test_shuffled_tokens_are_the_kernel_of_another_pairing():
    a, b, shared, (E_A, E_B) = tables(8, 12)
    order = shuffled(len(shared), 0)
    assert sorted(order.tolist()) == list(range(30)) and order.tolist() != list(range(30))
    found = kernel(a, b, shared, order=order).matrix.numpy()
    assert found == pytest.approx(E_A @ np.linalg.pinv(E_B[:, order.numpy()]), abs=1e-10)


def test_what_cannot_be_inverted_is_refused():
    a, b, shared, _ = tables(8, 12)
    with pytest.raises(EmbspaceError, match="pinv or transpose"):
        kernel(a, b, shared, "inverse")  # type: ignore[arg-type]
    with pytest.raises(EmbspaceError, match="zero"):
        kernel(a, VocabularySpace(torch.zeros(50, 12), None), shared)
