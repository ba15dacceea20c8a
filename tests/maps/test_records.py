"""What every result that read text says of its run, and 16-bit answers in and out of a batch."""

from collections.abc import Callable
from typing import Any

import embspace_data
import pytest
import torch

import embspace
from embspace.live.capture import capture_all
from embspace.live.running import start_model
from embspace.maps.decoding import Head
from embspace.maps.lens_comparison import compare_lenses
from embspace.maps.run_record import SAMPLED, batch_changes
from embspace.text.passages import passages
from embspace.text.text import Text
from embspace.weights.run_settings import RunSettings

TEXT = Text(tuple(embspace_data.sentences("reference", 60, 3)), "made up", seed=5, positions=1)
OTHER = Text(tuple(embspace_data.sentences("story", 60, 3)), "made up too", seed=5, positions=1)
RECORDED = {"run_dtype": "bfloat16", "batch_tokens": 512, "seed": 5, "positions": 1}

RESULTS: dict[str, Callable[[Any], Any]] = {
    "score": lambda m: embspace.score(m, None, TEXT).settings,
    "exits": lambda m: embspace.exits(m, None, TEXT).settings,
    "alternate": lambda m: embspace.alternate(m, None, TEXT, schedules="single").settings,
    "submodules": lambda m: embspace.submodules(m, TEXT, rows=8).settings,
    "transfer": lambda m: embspace.transfer(m, TEXT, OTHER).settings,
    "lenses": lambda m: compare_lenses(m, ["id", "mat"], TEXT).settings,
    "fit": lambda m: embspace.fit(m, TEXT).about,
}


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    how = RunSettings(dtype="bfloat16", batch_tokens=512)
    return embspace.load(tiny_gpt2, run=how)


@pytest.mark.parametrize("name", list(RESULTS))
def test_seed_positions_dtype_batch_and_text_are_recorded(name, model):
    found = RESULTS[name](model)
    assert found | RECORDED == found
    if name == "transfer":
        assert found["text_hashes"] == {c.source: c.digest for c in (TEXT, OTHER)}
    else:
        assert (found["text"], found["text_hash"]) == (TEXT.source, TEXT.digest)
    assert {"max_tokens", "special_tokens", "skip_first"} <= set(found)


def test_the_dtype_of_weights_is_beside_that_of_the_run(model):
    found = embspace.score(model, None, TEXT)
    assert found.provenance["dtype"] == "float32" and found.settings["run_dtype"] == "bfloat16"
    assert "run in bfloat16, 512 tokens a batch" in " ".join(str(found).split())


def test_text_that_was_generated_is_of_prompts_a_dtype_and_a_batch(model):
    how: Any = {"max_new_tokens": 2, "repeats": 1}
    one = embspace.generate(model, None, ["The cats", "dogs"], **how)
    assert (one.settings["run_dtype"], one.settings["batch"]) == ("bfloat16", 2)
    other = embspace.generate(model, None, ["The cats", "men"], **how)
    assert one.settings["prompts_hash"] != other.settings["prompts_hash"]


def test_answers_that_change_with_the_batch_are_counted(model):
    """Against passes run one by one here; a wide run has nothing to say."""
    taken = passages(model, Text.read(TEXT, positions="all")).passages
    running = start_model(model)
    found, said = batch_changes(running, taken)
    head, some, n = Head(model), [], 0
    for one in taken:
        if n >= SAMPLED:
            break
        some.append(one)
        n += len(one.keep)
    alone = [capture_all(running, [p], layers=[model.n_layers]) for p in some]
    alone = torch.cat([head(x.layers[model.n_layers]).argmax(-1) for x in alone])
    together = capture_all(running, some, layers=[model.n_layers], batch_tokens=512)
    together = head(together.layers[model.n_layers]).argmax(-1)
    changed = int((alone != together).sum())
    assert found == {"batch_changes": {"rows": n, "changed": changed}}
    assert f"changes at {changed} of {n} positions" in said[0]
    assert batch_changes(start_model(model.with_run(dtype="float32")), taken) == ({}, ())


def test_a_16_bit_result_says_how_often_its_batch_decides(model):
    for name in ("score", "exits", "alternate", "submodules", "lenses"):
        assert RESULTS[name](model)["batch_changes"]["rows"] > 0
    assert set(RESULTS["transfer"](model)["batch_changes"]) == {TEXT.source, OTHER.source}
    wide = embspace.score(model.with_run(dtype="float32"), None, TEXT)
    assert "batch_changes" not in wide.settings
