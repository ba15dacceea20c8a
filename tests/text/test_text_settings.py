import numpy as np
import pytest

import embspace
from embspace import Text
from embspace.errors import EmbspaceError, TextError
from embspace.text.splits import split

LINES = [f"Line {i} is here." for i in range(8)]


def test_numbers_of_numpy_are_taken_as_pythons():
    given = Text.read(
        LINES, positions=np.arange(8), seed=np.int64(3), held_out=np.float32(0.25), fit=None
    )
    plain = Text.read(LINES, positions=list(range(8)), seed=3, held_out=0.25)
    assert given == plain and split(given) == split(plain)
    assert Text.read(LINES, positions=np.int64(2)).positions == 2
    assert Text.read(LINES, held_out=np.arange(3)).held_out == (0, 1, 2)


def test_one_number_is_no_list_of_lines_to_fit():
    with pytest.raises(TextError, match="fit must be a list"):
        Text.read(LINES, fit=3)


def test_how_a_model_runs_is_said_when_it_is_loaded(tiny_gpt2):
    how = embspace.RunSettings(dtype="bfloat16", batch_tokens=64)
    model = embspace.load(tiny_gpt2, run=how)
    assert model.run_settings == how
    assert model.with_run(dtype="float32").run_settings == embspace.RunSettings(batch_tokens=64)
    assert model.run_settings == how  # the other is a copy
    with pytest.raises(EmbspaceError):
        embspace.RunSettings(dtype="int8")


def test_one_sentence_is_no_list_of_letters():
    with pytest.raises(TextError, match="a list of sentences"):
        Text("abc", "x")  # type: ignore[arg-type]
