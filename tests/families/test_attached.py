"""A live model of every family is known as the one of its checkpoint, and a changed one is not."""

import pytest
import torch

from embspace.errors import ModelError
from embspace.live.attach import attach
from embspace.live.running import run
from embspace.read.reader import load

from .zoo import ZOO, build


@pytest.mark.parametrize("name", ZOO)
def test_own_weights_are_accepted_in_any_dtype_and_changed_ones_refused(name: str, tmp_path):
    build(name).save_pretrained(tmp_path)
    model = load(tmp_path)
    module = run(model, dtype=torch.bfloat16).module
    attach(model, module)
    block = attach(model, module).block(model.n_layers - 1)
    with torch.no_grad():
        next(block.parameters()).mul_(2)
    with pytest.raises(ModelError, match="holds other numbers"):
        attach(model, module)
