"""A few huge rows, as first tokens and sinks have them, are counted and told beside the scores."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from embspace import load
from embspace.live.capture import capture_all
from embspace.live.running import run
from embspace.maps.fit import fit
from embspace.show import as_text
from embspace.text.passages import passages
from embspace.text.text import Text


@pytest.fixture(scope="module")
def sinking(tiny_gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small GPT-2 whose first token of every text is a thousand times as long as the others."""
    folder = Path(shutil.copytree(tiny_gpt2, tmp_path_factory.mktemp("sinking") / "model"))
    stored = load_file(folder / "model.safetensors")
    stored["transformer.wpe.weight"][0] *= 1000
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return load(folder)


def test_rows_of_a_sink_are_counted_and_said_to_carry_a_pooled_score(sinking, corpus: Text):
    maps = fit(sinking, Text.read(corpus, fit=range(90), positions="all"), pairs=[(1, 3)])
    taken = passages(sinking, Text.read(corpus, positions="all")).passages
    norms = capture_all(run(sinking), taken, layers=[1]).layers[1].norm(dim=1)
    assert int((norms > 10 * norms.median()).sum()) == len(taken) == 120  # the first of every line
    assert maps.about["rows_outlying"] == 120  # fitted and scored
    (pair,) = maps.pairs
    assert pair.r2 is not None and pair.r2_pooled is not None
    shown = " ".join(as_text(maps, 200).split())
    assert "120 rows have a norm over 10 times their layer's median" in shown
    assert "pooled" in shown and f"{pair.r2_pooled:.3f}" in shown and f"{pair.r2:.3f}" in shown


def test_without_their_first_tokens_texts_have_none(sinking, corpus: Text):
    maps = fit(
        sinking, Text.read(corpus, fit=range(90), positions="all", skip_first=1), pairs=[(1, 3)]
    )
    assert maps.about["rows_outlying"] == 0
    assert "10 times their layer's median" not in " ".join(as_text(maps, 200).split())
