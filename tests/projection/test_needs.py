"""What work will need is known before it starts, and refused where it cannot fit."""

import pytest
import torch

import embspace
from embspace.errors import ResourceError
from embspace.projection import needs

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


def all_needs(model):
    return [
        needs.needs_of_circuits(model, 10),
        needs.needs_of_rows(model, 10),
        needs.needs_of_vectors(model, 10),
        needs.needs_of_neurons(model, 3, passes=2),
        needs.needs_of_token(model),
    ]


def test_every_kind_of_work_names_memory_and_time(model):
    for needed in all_needs(model):
        assert needed.private > 0 and needed.seconds > 0
        assert needed.mapped == 300 * 32 * 4
        assert needed.peak > needed.private + needed.mapped


def test_more_circuits_take_longer_but_no_more_memory(model):
    one, many = (needs.needs_of_circuits(model, n) for n in (1, 1000))
    assert many.seconds > one.seconds and many.private == one.private


def test_filters_need_less(model):
    few, all_ = (needs.needs_of_circuits(model, 5, rows=rows) for rows in (10, None))
    assert few.private < all_.private and few.seconds < all_.seconds


def test_what_fits_is_let_through_and_what_does_not_is_refused(monkeypatch):
    needed = needs.Needs(private=1000, mapped=10**12, seconds=1)
    monkeypatch.setattr(needs, "free_memory", lambda device=None: 1000)
    needed.require(CPU, way_out="do less.")
    monkeypatch.setattr(needs, "free_memory", lambda device=None: 999)
    with pytest.raises(ResourceError, match="do less"):
        needed.require(CPU, way_out="do less.")


def test_a_containers_limit_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(needs, "CGROUP", tmp_path)
    free = needs.free_memory(CPU)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    assert needs.free_memory(CPU) == 1000 < free
    (tmp_path / "memory.max").write_text("max\n")
    assert needs.free_memory(CPU) > 1000


@pytest.mark.parametrize(
    ("n", "text"), [(1, "1 MB"), (340e6, "340 MB"), (1.24e9, "1.2 GB"), (5e11, "500.0 GB")]
)
def test_bytes_are_readable(n, text):
    assert needs.gigabytes(n) == text
