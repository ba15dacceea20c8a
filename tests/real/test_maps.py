"""Cross-layer maps of SmolLM2 over Wikipedia sentences against figures computed independently."""

import json
import os
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from embspace import load
from embspace.maps.fit import fit
from embspace.maps.score import score
from embspace.text.passages import Encoder, passages
from embspace.text.text import Text

REAL = Path(os.environ.get("EMBSPACE_REAL", Path.home() / ".cache" / "embspace-real"))
FIT, SCORED = range(9000), range(9000, 12000)


@pytest.fixture(scope="module")
def figures(reference: Path) -> dict:
    return json.loads((reference / "maps.json").read_text())


@pytest.fixture(scope="module")
def wiki() -> Text:
    file = REAL / "wiki" / "sentences.txt"
    if not file.is_file():
        pytest.skip("the Wikipedia sentences are not on this machine")
    return Text.read(file, limit=12_000)


def test_positions_and_tokens_are_those_of_the_reference(smollm2, figures, wiki):
    """One position a line drawn over 12,000 lines in order; no token is added."""
    found = passages(load(smollm2), wiki)
    assert len(wiki) == 12_000
    assert [p.keep for p in found.passages] == [(at,) for at in figures["positions"]]
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    for one in found.passages[::397]:
        ids = tokenizer(wiki.lines[one.line])["input_ids"]
        assert list(one.ids) == ids[: one.keep[0] + 1]
    assert Encoder(load(smollm2)).max_tokens == 256


def test_a_small_fit_is_below_the_reference_and_above_the_identity(smollm2, figures, wiki):
    """300 rows for 576 coordinates: the last jump is better than none, and worse than the full."""
    maps = fit(
        load(smollm2), Text.read(wiki, fit=range(300), held_out=range(300, 400)), pairs=[(29, 30)]
    )
    (pair,) = maps.pairs
    assert pair.rank <= 300
    assert any("do not determine" in note for note in maps.about["notes"])
    assert pair.r2 is not None
    assert pair.r2_id is not None
    assert pair.r2 < figures["r2_mat"]["29-30"]
    assert pair.r2_id == pytest.approx(figures["r2_id"]["29-30"], abs=0.1)


@pytest.mark.slow
def test_every_figure_of_the_reference_is_met(smollm2, figures, wiki):
    found = score(load(smollm2), text=Text.read(wiki, held_out=SCORED, fit=FIT))
    near = figures["tolerance"]
    for kind in ("mat", "id"):
        for pair, wanted in figures[f"r2_{kind}"].items():
            assert found.r2[kind][pair] == pytest.approx(wanted, abs=near["r2"]), (kind, pair)
        by_layer = {one.layer: one.means for one in found.layers[kind]}
        for layer, (p1, p5, p10, surprisal) in figures["scores"][kind].items():
            means = by_layer[int(layer)]
            for k, wanted in ((1, p1), (5, p5), (10, p10)):
                assert means[f"precision@{k}"] == pytest.approx(wanted, abs=near["precision"])
            assert means["surprisal"] == pytest.approx(surprisal, abs=near["surprisal"])
