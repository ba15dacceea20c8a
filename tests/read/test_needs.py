"""What work will need is known before it starts, and refused where it cannot fit."""

import pytest
import torch

import embspace
from embspace.read import forecast as needs

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
